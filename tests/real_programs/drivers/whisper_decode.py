"""whisper's model with random weights, and its greedy decoding of random spectrograms."""

import sys
import types

import torch

if "numba" not in sys.modules:  # for word timestamps alone, which nothing asks for here
    sys.modules["numba"] = types.SimpleNamespace(jit=lambda *_, **__: lambda function: function)  # type: ignore[assignment]

from whisper.decoding import DecodingOptions
from whisper.model import ModelDimensions, Whisper

torch.manual_seed(0)
model = Whisper(ModelDimensions(80, 1500, 256, 4, 3, 51865, 448, 256, 4, 3)).eval()
for clip in range(2):
    spectrogram = torch.randn(1, 80, 3000)
    result = model.decode(
        spectrogram, DecodingOptions(language="en", fp16=False, without_timestamps=True, sample_len=120)
    )
    print(clip, result[0].tokens, round(result[0].avg_logprob, 3))
