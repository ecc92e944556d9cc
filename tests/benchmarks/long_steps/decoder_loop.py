"""Long inference without an optimizer: recordings are transcribed token by token, a beam each."""

import sys

import torch
from torch import Tensor, nn

WIDTH, LAYERS, TOKENS, VOCABULARY = 128, 4, 100, 1000


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=mask)
        return self.head(x[:, -1])


def transcribe(encoder: nn.Module, decoder: nn.Module, sound: Tensor) -> list[int]:
    memory = encoder(sound)
    tokens = torch.zeros(1, 1, dtype=torch.long)
    while tokens.shape[1] < TOKENS:
        logits = decoder(tokens, memory)
        logits[:, 0] = -torch.inf
        following = logits.log_softmax(-1).argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens[0].tolist()


def main(rounds: int) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True), 2).eval()
    decoder = Decoder().eval()
    with torch.inference_mode():
        for number in range(rounds):
            tokens = transcribe(encoder, decoder, torch.rand(1, 200, WIDTH))
            if number % 10 == 0:
                print(number, sum(tokens))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
