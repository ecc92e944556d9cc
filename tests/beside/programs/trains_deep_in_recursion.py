"""Each step is called some hundred frames deeper than the one before."""
from _tiny import begin, digest, step


def train(number, depth):
    if depth:
        return train(number, depth - 1)
    return step(model, optimizer).item()


model, optimizer = begin()
losses = [train(number, number * 14) for number in range(60)]
digest(model, losses)
