from torch import cat, nn, no_grad


class Net(nn.Sequential):
    def __init__(self, features, classes):
        super().__init__(nn.Linear(features, 48), nn.GELU(), nn.Linear(48, classes))


@no_grad()
def score(net, batches):
    """The probabilities of all rows."""
    scores = []
    for batch in batches:
        probs = net(batch).softmax(dim=1)
        scores.append(probs)
    return cat(scores, dim=0)
