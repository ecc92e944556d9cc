"""Sentiment of reviews: tokens, a vocabulary, a collate function with a mask, attention pooling."""
import random
from collections import Counter

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Vocabulary:
    def __init__(self, texts):
        counts = Counter(word for text in texts for word in text.split())
        self.ids = {word: i for i, (word, _) in enumerate(counts.most_common(), 1)}

    def encode(self, text):
        return [self.ids[word] for word in text.split()]

    def __len__(self):
        return len(self.ids) + 1


class Reviews(Dataset):
    def __init__(self, texts, labels):
        self.vocabulary = Vocabulary(texts)
        self.rows = [torch.tensor(self.vocabulary.encode(text)) for text in texts]
        self.labels = labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


def collate(samples):
    rows, labels = zip(*samples)
    lengths = torch.tensor([len(row) for row in rows])
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for i, length in enumerate(lengths):
        mask[i, :length] = True  # expect: tensor-element-loop
    return ids, mask, torch.tensor(labels)


class Pooled(nn.Module):
    def __init__(self, words, width=32):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(width, 2)

    def forward(self, ids, mask):
        x = self.embed(ids)
        scores = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1).unsqueeze(-1) * x).sum(1))


def make_reviews(rng, n=16000):
    words = [f"w{i}" for i in range(500)]
    texts = [" ".join(rng.choices(words, k=rng.randint(3, 24))) for _ in range(n)]
    return texts, [text.count("7") % 2 for text in texts]


def main():
    rng = random.Random(17)
    torch.manual_seed(17)
    dataset = Reviews(*make_reviews(rng))
    loader = DataLoader(dataset, batch_size=200, shuffle=True, collate_fn=collate)
    model = Pooled(len(dataset.vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        right = 0
        for ids, mask, labels in loader:
            logits = model(ids, mask)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(-1) == labels).sum().item()
        print(epoch, right)


if __name__ == "__main__":
    main()
