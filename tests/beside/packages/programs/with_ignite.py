from ignite.engine import Events, create_supervised_trainer

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(240, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.01), torch.nn.MSELoss())


@trainer.on(Events.COMPLETED)
def show(engine):
    print(engine.state.iteration, engine.state.output)


trainer.run(loader, max_epochs=2)
