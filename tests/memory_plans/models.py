"""Models for comparing plans with measurements: random weights, and batches that two CPUs run in seconds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def _cross_entropy(logits):
    labels = torch.zeros(logits.shape[:-1], dtype=torch.int64)
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _image_model(name: str, side: int = 224, **settings):
    import torchvision

    def images(samples: int):
        return torch.zeros(samples, 3, side, side)

    return getattr(torchvision.models, name)(**settings), images, _cross_entropy


def alexnet():
    return _image_model("alexnet")


def vgg16():
    return _image_model("vgg16")


def resnet18():
    return _image_model("resnet18")


def resnet50():
    return _image_model("resnet50")


def mobilenet_v2():
    return _image_model("mobilenet_v2")


def vit_b_16():
    return _image_model("vit_b_16")


def convnext_tiny():
    import timm

    return timm.create_model("convnext_tiny"), lambda samples: torch.zeros(samples, 3, 224, 224), _cross_entropy


def swin_tiny():
    import timm

    model = timm.create_model("swin_tiny_patch4_window7_224", drop_path_rate=0.1)
    return model, lambda samples: torch.zeros(samples, 3, 224, 224), _cross_entropy


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    def tokens(samples: int):
        ids = torch.zeros(samples, 256, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids}

    return GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0)), tokens


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    def tokens(samples: int):
        ids, labels = torch.zeros(samples, 128, dtype=torch.int64), torch.zeros(samples, dtype=torch.int64)
        return {"input_ids": ids, "labels": labels}

    return BertForSequenceClassification(BertConfig()), tokens


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    def tokens(samples: int):
        ids = torch.zeros(samples, 256, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids}

    settings = LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=8000,
        use_cache=False,
    )
    return LlamaForCausalLM(settings), tokens


def x_transformer():
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(num_tokens=8000, max_seq_len=256, attn_layers=Decoder(dim=384, depth=6, heads=6))
    return model, lambda samples: torch.zeros(samples, 256, dtype=torch.int64), _cross_entropy


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 512, num_layers=2, batch_first=True)
        self.head = nn.Linear(512, 10000)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm():
    return Lstm(), lambda samples: torch.zeros(samples, 64, dtype=torch.int64), _cross_entropy


class _Twice(nn.Sequential):
    def __init__(self, before: int, after: int):
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(map(_Twice, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, wide // 2, 2, 2) for wide in widths[:0:-1])
        self.join = nn.ModuleList(_Twice(wide, wide // 2) for wide in widths[:0:-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image):
        kept = []
        for level, down in enumerate(self.down):
            image = down(image if level == 0 else functional.max_pool2d(image, 2))
            kept.append(image)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            image = join(torch.cat([kept.pop(), up(image)], dim=1))
        return self.head(image)


def unet():
    def loss(maps):
        labels = torch.zeros(maps.shape[0], *maps.shape[2:], dtype=torch.int64)
        return functional.cross_entropy(maps, labels)

    return UNet(), lambda samples: torch.zeros(samples, 3, 128, 128), loss


class Tower(nn.Module):
    """Eight blocks; `tests/memory_planner/test_against_an_h100.py` says more."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)
        )

    def forward(self, data):
        for layer in self.layers:
            data = data + layer(data)
        return data.square()


def tower():
    return Tower(), lambda samples: torch.zeros(samples, 1024)


def gpt2_of_eight_layers():
    from transformers import GPT2Config, GPT2LMHeadModel

    def tokens(samples: int):
        ids = torch.zeros(samples, 512, dtype=torch.int64)
        return {"input_ids": ids, "labels": ids}

    return GPT2LMHeadModel(GPT2Config(n_layer=8, attn_implementation="sdpa")), tokens


def resnet50_of_100_classes():
    return _image_model("resnet50", num_classes=100)
