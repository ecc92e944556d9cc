import torch as T
import torch.nn.functional as f

T.manual_seed(11)


def make_bank(size):
    bank = T.empty(0, size)

    def push(rows):
        nonlocal bank
        bank = T.cat([bank, rows])

    def read():
        return bank

    return push, read


def embed(x, w):
    return f.normalize(x @ w, dim=1)


def collect(w, rounds=250):
    codes = T.empty(0, 96)
    for _ in range(rounds):
        code = embed(T.randn(64, 32), w)
        codes = T.cat([codes, code])  # expect: growing-concatenation
    return codes


def main():
    weights = T.randn(32, 96)
    codes = collect(weights)
    push, read = make_bank(96)
    push(codes[:10])
    print("bank", tuple(read().shape), "mean", round(codes.abs().mean().item(), 6))


main()
