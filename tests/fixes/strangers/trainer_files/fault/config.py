from dataclasses import dataclass, field


@dataclass
class DataConfig:
    frames: int = 120
    size: int = 96
    batch: int = 64


@dataclass
class Config:
    lr: float = 0.05
    epochs: int = 2
    seed: int = 9
    data: DataConfig = field(default_factory=DataConfig)
