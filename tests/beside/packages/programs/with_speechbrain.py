import speechbrain as sb

import torch


class Simple(sb.Brain):
    def compute_forward(self, batch, stage):
        return self.modules.model(batch[0])

    def compute_objectives(self, predictions, batch, stage):
        return torch.nn.functional.l1_loss(predictions, batch[1])

    def on_stage_end(self, stage, stage_loss, epoch):
        print(stage_loss)


torch.manual_seed(0)
brain = Simple(
    {"model": torch.nn.Linear(10, 10)},
    opt_class=lambda parameters: torch.optim.SGD(parameters, 0.1),
    run_opts={"device": "cpu"},
)
data = [(torch.rand(4, 10), torch.rand(4, 10)) for _ in range(25)]
brain.fit(epoch_counter=range(2), train_set=data, progressbar=False)
