"""Pre-trains BERT-pytorch on a vocabulary of the corpus, as its two commands do one after the other."""

import random
import sys

import torch
from bert_pytorch.__main__ import train
from bert_pytorch.dataset import WordVocab

random.seed(0)
torch.manual_seed(0)
with open("corpus.txt", encoding="utf-8") as corpus:
    WordVocab(corpus).save_vocab("vocabulary")
sys.argv[1:] = ["-c=corpus.txt", "-v=vocabulary", "-o=bert", "-hs=128", "-l=4", "-a=4", "-e=2", "-w=1", "-b=32"]
train()
