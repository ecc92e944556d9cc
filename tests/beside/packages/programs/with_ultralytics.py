from ultralytics import YOLO

from pathlib import Path

import numpy as np
from PIL import Image

random = np.random.default_rng(0)
for number in range(16):
    image, label = Path(f"data/images/{number}.png"), Path(f"data/labels/{number}.txt")
    image.parent.mkdir(parents=True, exist_ok=True)
    label.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(image)
    label.write_text("0 0.5 0.5 0.4 0.4\n")
Path("data/data.yaml").write_text(f"path: {Path('data').resolve()}\ntrain: images\nval: images\nnames: [thing]\n")
Path("tiny.yaml").write_text(
    """
nc: 1
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [[1, 2], 1, Detect, [nc]]
"""
)
model = YOLO("tiny.yaml", task="detect", verbose=False)
model.train(
    data="data/data.yaml",
    epochs=8,
    batch=2,
    imgsz=32,
    device="cpu",
    workers=0,
    val=False,
    plots=False,
    save=False,
    verbose=False,
    seed=0,
    optimizer="SGD",
    warmup_epochs=0,
    nbs=2,
)
print(model.trainer.loss.item())
