from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CosineSimilarityLoss
from sentence_transformers.models import StaticEmbedding

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import set_seed

set_seed(0)
words = ["<pad>", *"the cat sat on a mat and dog ran off".split()]
tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
tokenizer.pre_tokenizer = Whitespace()
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
pairs = Dataset.from_dict(
    {
        "sentence1": ["the cat sat", "a dog ran"] * 120,
        "sentence2": ["a cat sat on the mat", "the mat"] * 120,
        "score": [0.9, 0.1] * 120,
    }
)
arguments = SentenceTransformerTrainingArguments(
    output_dir="out",
    max_steps=50,
    per_device_train_batch_size=4,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    use_cpu=True,
    seed=0,
)
trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=CosineSimilarityLoss(model))
print(trainer.train().training_loss)
