# kind: inference, vision
"""Classify images with a trained network: no optimizer, no loader."""

import torch
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 100),
    )


def classify(network, images):
    predicted = []
    with torch.inference_mode():
        for batch in images.split(16):
            scores = network(batch)
            predicted.append(scores.argmax(dim=1))
        return torch.cat(predicted)


if __name__ == "__main__":
    torch.manual_seed(1)
    labels = classify(build().eval(), torch.randn(16 * 30, 3, 64, 64))
    print("most common class:", labels.mode().values.item(), "of", len(labels))
