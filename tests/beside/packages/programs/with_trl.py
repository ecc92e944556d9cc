from trl import SFTConfig, SFTTrainer

from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

disable_progress_bars()
set_seed(0)
words = ["<pad>", "<eos>", *"the cat sat on a mat and dog ran off".split()]
tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
tokenizer.pre_tokenizer = Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=len(words), n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
)
texts = Dataset.from_dict({"text": ["the cat sat on a mat", "a dog ran off the mat"] * 120})
arguments = SFTConfig(
    output_dir="out",
    max_steps=50,
    per_device_train_batch_size=4,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    max_length=16,
    seed=0,
)
trainer = SFTTrainer(model=model, args=arguments, train_dataset=texts, processing_class=fast)
print(trainer.train().training_loss)
