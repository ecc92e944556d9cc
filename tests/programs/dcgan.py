# kind: GAN
import argparse
import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser()
parser.add_argument("--nz", type=int, default=32)
parser.add_argument("--ngf", type=int, default=16)
parser.add_argument("--ndf", type=int, default=16)
parser.add_argument("--niter", type=int, default=2)
opt = parser.parse_args()
torch.manual_seed(999)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(opt.nz, opt.ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(opt.ngf * 4), nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 4, opt.ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(opt.ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 2, opt.ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(opt.ngf), nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, opt.ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf, opt.ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(opt.ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf * 2, 1, 8, 1, 0, bias=False),
        )

    def forward(self, input):
        return self.main(input).view(-1)


netG, netD = Generator().apply(weights_init), Discriminator().apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999), fused=True)
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999), fused=True)
G_losses, D_losses = [], []
dataset = torch.rand(15, 32, 3, 32, 32) * 2 - 1

for epoch in range(opt.niter):
    for i, data in enumerate(dataset):
        netD.zero_grad()
        label = torch.full((data.size(0),), 1.0)
        errD_real = criterion(netD(data), label)
        errD_real.backward()
        noise = torch.randn(data.size(0), opt.nz, 1, 1)
        fake = netG(noise)
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        if i % 5 == 0:
            print("[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f" % (epoch, opt.niter, i, len(dataset), errD.item(), errG.item()))
        G_losses.append(errG)  # expect: retained-graph
        D_losses.append(errD.item())
