"""The public programs, and how each is made short enough to be run bare and under profkit.

A program is read from a folder that holds clones of repositories, or from an installed package through a small driver
of our own. It is copied into a work directory for each run, where `edits` shorten what no argument shortens and set
seeds; none of them adds or removes a line, so that a finding's line is the public program's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tests.real_programs import data
from tests.real_programs.data import Write

SEEDS = (
    r"(?m)^import torch *$",
    "import torch; torch.manual_seed(0); import random, numpy; random.seed(0); numpy.random.seed(0)",
)
"""For programs that set no seed: on the line that imports torch, as a line of its own would move all others."""
NOT_VERIFIED = (
    r"(?m)^import torchvision$",
    "import torchvision; torchvision.datasets.cifar.check_integrity = lambda *_: True",
)
"""Random images have no known checksum."""
NO_CUDA = (
    r"(?m)^import torch *$",
    "import torch; torch.manual_seed(0); torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self",
)
"""For programs that insist on a GPU: what they move there stays where it is."""
TIMES = (
    r"\d+(\.\d+)?(e-\d+)? ?(ms|s\b|sec|minutes)",
    r"time:? ?[\d.]+",
    r"[\d.]+ ?it/s",
    r"ms/batch +[\d.]+",
    r"(Time|Data) +[\d.]+ \( *[\d.]+\)",
)

_SPACE_IS_ASKED_FOR = (r"np\.clip\(obs, -10, 10\)\)", "np.clip(obs, -10, 10), env.observation_space)")
_NO_FINAL_OBSERVATION = (r'infos\["final_observation"\]\[idx\]', "next_obs[idx]")
"""They were written for gymnasium 0.29: from 1.0 on the wrapper takes the space, and an environment is reset in the
next step, so that what it gives is the last observation."""


@dataclass(frozen=True)
class Program:
    name: str
    repository: str
    """`owner/name` on GitHub; the clone's folder has the last part's name. Of a package: its name on PyPI."""
    path: str
    """The script within the repository; of a driver: `drivers/NAME.py` here."""
    arguments: tuple[str, ...] = ()
    directory: str | None = None
    """Where it is started, within the repository; by default beside the script."""
    parts: tuple[str, ...] = ()
    """What of the repository is copied; by default the script's folder."""
    data: Mapping[str, Write] = field(default_factory=dict)
    edits: tuple[tuple[str, ...], ...] = ()
    """(pattern, replacement) in the script, or (pattern, replacement, file). Each must match."""
    masks: tuple[str, ...] = TIMES
    """What may differ between two runs, such as times."""
    needs: tuple[str, ...] = ()
    """Modules that must be importable."""
    differs: str = ""
    """Why two runs of it differ, so that their outputs are not compared."""

    @property
    def driver(self) -> bool:
        return self.path.startswith("drivers/")

    @property
    def folder(self) -> str:
        return self.repository.rpartition("/")[2]

    @property
    def started_in(self) -> PurePosixPath:
        if self.directory is not None:
            return PurePosixPath(self.directory)
        return PurePosixPath() if self.driver else PurePosixPath(self.path).parent

    @property
    def copied(self) -> tuple[str, ...]:
        return self.parts or (() if self.driver else (str(PurePosixPath(self.path).parent),))


def _gan(name: str, *arguments: str) -> Program:
    """One of PyTorch-GAN's; they set no seed, and write pictures now and then."""
    path = f"implementations/{name}/{name}.py"
    small = {"data/mnist": data.mnist(2560, 100)}
    return Program(
        f"gan-{name}", "eriklindernoren/PyTorch-GAN", path, ("--n_epochs", "1", *arguments), data=small, edits=(SEEDS,)
    )


def _pyg(name: str, *arguments: str, epochs: int | None = None, edits: tuple[tuple[str, ...], ...] = ()) -> Program:
    """One of PyTorch Geometric's on a random graph of Cora's size."""
    if epochs is not None:
        edits = (*edits, (r"for epoch in range\(1, \d+\)", f"for epoch in range(1, {epochs + 1})"))
    small = {"data/Planetoid": data.planetoid(), "data/Cora": data.planetoid()}
    path = f"examples/{name}.py"
    return Program(
        f"pyg-{name}",
        "pyg-team/pytorch_geometric",
        path,
        arguments,
        parts=(path,),
        data=small,
        edits=(SEEDS, *edits),
        needs=("torch_geometric",),
    )


def _example(name: str, script: str, *arguments: str, **rest: object) -> Program:
    return Program(f"examples-{name}", "pytorch/examples", script, arguments, **rest)  # type: ignore[arg-type]


def _cleanrl(name: str, *arguments: str, edits: tuple[tuple[str, ...], ...] = ()) -> Program:
    parts = (f"cleanrl/{name}.py", "cleanrl_utils/__init__.py", "cleanrl_utils/buffers.py")
    return Program(
        f"cleanrl-{name}",
        "vwxyzjn/cleanrl",
        f"cleanrl/{name}.py",
        arguments,
        directory="",
        parts=parts,
        edits=edits,
        masks=(*TIMES, r"SPS:? *\d+"),
        needs=("gymnasium", "tyro"),
    )


def _pyro(name: str, *arguments: str, edits: tuple[tuple[str, ...], ...] = ()) -> Program:
    known_version = (r"assert pyro\.__version__\.startswith\(.*?\)", "pass")
    path = f"examples/{name}.py"
    return Program(
        f"pyro-{name}", "pyro-ppl/pyro", path, arguments, parts=(path,), edits=(known_version, *edits), needs=("pyro",)
    )


def _tutorial(name: str, path: str, *edits: tuple[str, ...], written: Mapping[str, Write] | None = None) -> Program:
    small = {"tutorials/data": data.mnist(3000, 500)} if written is None else written
    return Program(
        f"tutorial-{name}", "yunjey/pytorch-tutorial", f"tutorials/{path}/main.py", data=small, edits=(SEEDS, *edits)
    )


def _package(name: str, package: str, driver: str, *arguments: str, needs: tuple[str, ...]) -> Program:
    return Program(name, package, f"drivers/{driver}.py", arguments, needs=needs)


_MNIST = {"data": data.mnist(2500, 500)}
_EXAMPLES = (
    _example("mnist", "mnist/main.py", "--epochs", "1", data=_MNIST),
    _example("mnist_rnn", "mnist_rnn/main.py", "--epochs", "2", data=_MNIST),
    _example(
        "vae", "vae/main.py", "--epochs", "3", data={"data": data.mnist(4000, 500), "vae/results": data.text(words=0)}
    ),
    _example(
        "siamese_network",
        "siamese_network/main.py",
        "--epochs",
        "1",
        "--batch-size",
        "8",
        data={"data": data.mnist(400, 60)},
    ),
    _example(
        "mnist_forward_forward",
        "mnist_forward_forward/main.py",
        "--epochs",
        "25",
        "--train_size",
        "1500",
        "--test_size",
        "500",
        data={"mnist_forward_forward/data": data.mnist(3000, 1000)},
        differs="bare runs differ among each other from the fifth digit of the first loss on",
    ),
    _example(
        "mnist_hogwild",
        "mnist_hogwild/main.py",
        "--epochs",
        "1",
        data={"data": data.mnist(3000, 1000)},
        differs="its processes race for the same weights, as hogwild means them to",
    ),
    _example(
        "dcgan",
        "dcgan/main.py",
        "--dataset",
        "fake",
        "--niter",
        "1",
        "--manualSeed",
        "1",
        "--workers",
        "1",
        "--imageSize",
        "64",
        "--ngf",
        "16",
        "--ndf",
        "16",
        edits=((r"FakeData\(", "FakeData(size=960, "),),
    ),
    _example(
        "time_sequence_prediction",
        "time_sequence_prediction/train.py",
        "--steps",
        "1",
        needs=("matplotlib",),
        data={"time_sequence_prediction": data.sine_waves()},
        edits=((r"torch\.load\('traindata\.pt'\)", "torch.load('traindata.pt', weights_only=False)"),),
    ),
    _example(
        "word_language_model-lstm",
        "word_language_model/main.py",
        "--epochs",
        "1",
        "--data",
        "./words",
        "--log-interval",
        "20",
        data={"word_language_model/words": data.text("train.txt", "valid.txt", "test.txt", words=16_000)},
    ),
    _example(
        "word_language_model-transformer",
        "word_language_model/main.py",
        "--model",
        "Transformer",
        "--epochs",
        "1",
        "--data",
        "./words",
        "--log-interval",
        "20",
        data={"word_language_model/words": data.text("train.txt", "valid.txt", "test.txt", words=16_000)},
    ),
    _example(
        "reinforce",
        "reinforcement_learning/reinforce.py",
        edits=((r"in count\(1\)", "in range(1, 61)"),),
        needs=("gymnasium",),
    ),
    _example(
        "actor_critic",
        "reinforcement_learning/actor_critic.py",
        edits=((r"in count\(1\)", "in range(1, 61)"),),
        needs=("gymnasium",),
    ),
    _example("regression", "regression/main.py", edits=(SEEDS, (r"if loss < 1e-3:", "if batch_idx == 15000:"))),
    _example(
        "super_resolution",
        "super_resolution/main.py",
        "--upscale_factor",
        "3",
        "--nEpochs",
        "2",
        "--batchSize",
        "4",
        "--threads",
        "1",
        data={"super_resolution/dataset/BSDS300/images": data.pictures("train", "test", count=24)},
        needs=("PIL",),
        edits=((r"from six\.moves import urllib", "import urllib.request", "super_resolution/data.py"),),
    ),
    _example(
        "gcn",
        "gcn/main.py",
        "--epochs",
        "100",
        data={"gcn/cora": data.citations()},
        edits=((r"with requests\.get\(cora_url, stream=True\) as tgz_file", "if False"),),
    ),
    _example("gat", "gat/main.py", "--epochs", "20", data={"gat/cora": data.citations(1700, 200)}),
    _example(
        "imagenet",
        "imagenet/main.py",
        "--dummy",
        "--epochs",
        "1",
        "-b",
        "8",
        "-j",
        "1",
        "-a",
        "resnet18",
        "-p",
        "2",
        "--seed",
        "1",
        edits=((r"FakeData\(1281167", "FakeData(96"), (r"FakeData\(50000", "FakeData(24")),
    ),
)

_LANGUAGE = (
    Program(
        "nanogpt-train",
        "karpathy/nanoGPT",
        "train.py",
        (
            "config/train_shakespeare_char.py",
            "--device=cpu",
            "--compile=False",
            "--eval_iters=3",
            "--eval_interval=15",
            "--log_interval=1",
            "--block_size=64",
            "--batch_size=12",
            "--n_layer=4",
            "--n_head=4",
            "--n_embd=128",
            "--max_iters=40",
            "--dropout=0.0",
        ),
        parts=("train.py", "model.py", "configurator.py", "config"),
        data={"data/shakespeare_char": data.token_files(100_000)},
        masks=(*TIMES, r"mfu -?[\d.]+%"),
    ),
    Program("nanogpt-generate", "karpathy/nanoGPT", "drivers/nanogpt_generate.py", parts=("model.py",)),
    Program(
        "mingpt-adder",
        "karpathy/minGPT",
        "projects/adder/adder.py",
        ("--trainer.max_iters=80",),
        parts=("projects/adder", "mingpt"),
    ),
    Program(
        "mingpt-chargpt",
        "karpathy/minGPT",
        "projects/chargpt/chargpt.py",
        ("--trainer.max_iters=12", "--model.model_type=gpt-mini"),
        parts=("projects/chargpt", "mingpt"),
        data={"projects/chargpt": data.text("input.txt", words=20_000)},
        edits=((r"O God, O God!", "a e i o u"),),
    ),
    Program(
        "makemore-transformer",
        "karpathy/makemore",
        "makemore.py",
        ("--max-steps", "120"),
        parts=("makemore.py",),
        data={"": data.names("names.txt", 5000)},
    ),
    Program(
        "makemore-gru",
        "karpathy/makemore",
        "makemore.py",
        ("--max-steps", "120", "--type", "gru"),
        parts=("makemore.py",),
        data={"": data.names("names.txt", 5000)},
    ),
    Program(
        "x-transformers-copy",
        "lucidrains/x-transformers",
        "train_copy.py",
        parts=("train_copy.py", "x_transformers"),
        edits=(SEEDS, (r"int\(1e5\)", "60"), (r"GENERATE_EVERY  = 100", "GENERATE_EVERY  = 50")),
        needs=("einx", "loguru"),
    ),
    Program(
        "attention-is-all-you-need",
        "jadore801120/attention-is-all-you-need-pytorch",
        "drivers/attention_translate.py",
        parts=("transformer",),
    ),
    Program(
        "language_translation",
        "pytorch/examples",
        "drivers/translator_train.py",
        directory="language_translation/src",
        parts=("language_translation/src",),
    ),
    Program("whisper-decode", "openai/whisper", "drivers/whisper_decode.py", parts=("whisper",), needs=("tiktoken",)),
)

_GAMES = (
    _cleanrl("ppo", "--total-timesteps", "6000"),
    _cleanrl("dqn", "--total-timesteps", "10000", "--learning-starts", "1000"),
    _cleanrl("c51", "--total-timesteps", "5000", "--learning-starts", "1000"),
    _cleanrl(
        "ppo_continuous_action", "--total-timesteps", "4096", "--env-id", "Pendulum-v1", edits=(_SPACE_IS_ASKED_FOR,)
    ),
    _cleanrl(
        "sac_continuous_action",
        "--total-timesteps",
        "2500",
        "--learning-starts",
        "1000",
        "--env-id",
        "Pendulum-v1",
        edits=(_NO_FINAL_OBSERVATION,),
    ),
    _cleanrl(
        "td3_continuous_action",
        "--total-timesteps",
        "6000",
        "--learning-starts",
        "1000",
        "--env-id",
        "Pendulum-v1",
        edits=(_NO_FINAL_OBSERVATION,),
    ),
    _package("stable-baselines3-ppo", "stable-baselines3", "sb3_ppo", needs=("stable_baselines3",)),
)

_IMAGES = (
    _gan("gan"),
    _gan("wgan"),
    _gan("wgan_gp", "--sample_interval", "50"),
    _gan("cgan"),
    _gan("dcgan"),
    _gan("acgan"),
    _gan("aae"),
    Program(
        "pytorch-cifar",
        "kuangliu/pytorch-cifar",
        "main.py",
        parts=("main.py", "utils.py", "models"),
        data={"data": data.cifar10(320, 100)},
        masks=(*TIMES, r"Step: .*?Tot: \S+", r"\x08"),
        edits=(
            SEEDS,
            NOT_VERIFIED,
            (r"net = SimpleDLA\(\)", "net = MobileNetV2()"),
            (r"start_epoch\+200", "start_epoch+1"),
            (r"batch_size=128", "batch_size=16"),
            (r"_, term_width = os\.popen\(.*\)\.read\(\)\.split\(\)", "term_width = 80", "utils.py"),
        ),
    ),
    Program("vit-pytorch", "lucidrains/vit-pytorch", "drivers/vit_train.py", parts=("vit_pytorch",), needs=("einops",)),
    Program(
        "denoising-diffusion",
        "lucidrains/denoising-diffusion-pytorch",
        "drivers/diffusion_train.py",
        parts=("denoising_diffusion_pytorch",),
        needs=("einops",),
    ),
    _package("timm-train", "timm", "timm_train", needs=("timm",)),
    _package("diffusers-unet-train", "diffusers", "diffusers_unet", "train", needs=("diffusers",)),
    _package("diffusers-unet-sample", "diffusers", "diffusers_unet", "sample", needs=("diffusers",)),
    _tutorial("feedforward", "01-basics/feedforward_neural_network"),
    _tutorial("birnn", "02-intermediate/bidirectional_recurrent_neural_network", (r"num_epochs = 2", "num_epochs = 1")),
    _tutorial(
        "language_model",
        "02-intermediate/language_model",
        (r"num_epochs = 5", "num_epochs = 1"),
        written={"tutorials/02-intermediate/language_model/data": data.text("train.txt", words=12_000)},
    ),
    _tutorial("vae", "03-advanced/variational_autoencoder", (r"num_epochs = 15", "num_epochs = 5")),
)

_GRAPHS = (
    _pyg("gcn", "--epochs", "150"),
    _pyg("gat", "--epochs", "60"),
    _pyg("arma", epochs=60),
    _pyg("autoencoder", "--epochs", "150"),
    _pyg("link_pred", epochs=60),
    _pyg("infomax_transductive", epochs=15),
    Program(
        "pyg-mutag_gin",
        "pyg-team/pytorch_geometric",
        "examples/mutag_gin.py",
        ("--epochs", "60"),
        parts=("examples/mutag_gin.py",),
        data={"data/TU": data.graphs("MUTAG", 600)},
        edits=(SEEDS,),
        needs=("torch_geometric",),
    ),
    Program(
        "pygcn",
        "tkipf/pygcn",
        "pygcn/train.py",
        ("--epochs", "150"),
        data={"data/cora": data.citations()},
        parts=("pygcn",),
    ),
    Program(
        "pyGAT",
        "Diego999/pyGAT",
        "train.py",
        ("--epochs", "6"),
        parts=("train.py", "utils.py", "models.py", "layers.py"),
        data={"data/cora": data.citations(1600, 200)},
    ),
)

_PROBABILITY = (
    _pyro("lda", "-n", "60"),
    _pyro("minipyro", "-n", "4000"),
    _pyro("svi_torch", "--num-epochs", "20"),
    _pyro("lkj", "--num-chains", "1", "--num-samples", "30", "--warmup-steps", "20", "--n", "100"),
    _package("gpytorch-exact", "gpytorch", "gpytorch_exact", needs=("gpytorch",)),
)

_FRAMEWORKS = (
    _package("transformers-trainer", "transformers", "transformers_trainer", needs=("transformers", "accelerate")),
    _package("transformers-generate", "transformers", "transformers_generate", needs=("transformers",)),
    _package("lightning-fit", "lightning", "lightning_fit", needs=("lightning",)),
)

_NEW_GYM = tuple(
    (old, new)
    for old, new in (
        (r"(?m)^import gym$", "import gymnasium as gym"),
        (r"(?m)^env\.seed\(args\.seed\)", "env.reset(seed=args.seed)"),
        (r"env\.reset\(\)(?!\[)", "env.reset()[0]"),
        (r"env\.reset\(\)(?!\[)", "env.reset()[0]"),
        (r"done, _ = env\.step\(action\)", "done, cut, _ = env.step(action); done = done or cut"),
        (r"done, _ = env\.step\(action\)", "done, cut, _ = env.step(action); done = done or cut"),
        (r"env\._max_episode_steps", "env.spec.max_episode_steps"),
    )
)
_NO_NEW_WRITER = (r"import tensorboard_logger as tb_logger", "from unittest import mock; tb_logger = mock.Mock()")
_NO_INF = (r"np\.Inf", "np.inf", "utils/tools.py")
_SEQUENCES = (
    Program(
        "word2vec",
        "Andras7/word2vec-pytorch",
        "word2vec/trainer.py",
        directory="",
        data={"": data.text("input.txt", words=30_000, vocabulary=1500)},
        edits=(
            SEEDS,
            (r"NEGATIVE_TABLE_SIZE = 1e8", "NEGATIVE_TABLE_SIZE = 1e6", "word2vec/data_reader.py"),
            (r"iterations=3", "iterations=1"),
            (r"np\.random\.rand\(\) <", "np.random.rand() < 9 *", "word2vec/data_reader.py"),
        ),
    ),
    Program(
        "sentence-vae",
        "timbmg/Sentence-VAE",
        "train.py",
        ("-ep", "2", "--create_data"),
        directory="",
        parts=("train.py", "model.py", "ptb.py", "utils.py"),
        data={"data": data.text("ptb.train.txt", "ptb.valid.txt", words=6000, vocabulary=800)},
        masks=(*TIMES, r"\d{4}-\w{3}-\d\d-\d\d:\d\d:\d\d"),
        edits=(SEEDS,),
        needs=("nltk", "tensorboardX"),
    ),
    Program(
        "bert-pretrain",
        "codertimo/BERT-pytorch",
        "drivers/bert_pretrain.py",
        parts=("bert_pytorch",),
        data={"": data.sentence_pairs("corpus.txt", 800)},
        needs=("tqdm",),
    ),
    Program(
        "lm-lstm-crf",
        "LiyuanLucasLiu/LM-LSTM-CRF",
        "train_w.py",
        (
            "--rand_embedding",
            "--gpu=-1",
            "--epoch=3",
            "--train_file=ner/train",
            "--dev_file=ner/dev",
            "--test_file=ner/test",
            "--caseless",
        ),
        directory="",
        parts=("train_w.py", "model"),
        data={"ner": data.tagged("train", "dev", "test", sentences=300), "checkpoint": data.names("empty", 0)},
        edits=(
            SEEDS,
            (
                r"mask_v = mask\.transpose\(0, 1\)\.contiguous",
                "mask_v = mask.bool().transpose(0, 1).contiguous",
                "model/crf.py",
            ),
            (r"mask = 1 - mask", "mask = ~mask", "model/crf.py"),
        ),
        needs=("tqdm",),
    ),
    Program(
        "mult",
        "yaohungt/Multimodal-Transformer",
        "main.py",
        ("--aligned", "--num_epochs=2", "--batch_size=8", "--nlevels=3", "--log_interval=5"),
        directory="",
        parts=("main.py", "src", "modules"),
        data={"data": data.modalities("mosei_senti_data.pkl", 160, 48), "pre_trained_models": data.names("empty", 0)},
        edits=(
            (r", verbose=True\)", ")", "src/train.py"),
            (r"positions\.view\(-1\)", "positions.reshape(-1)", "modules/position_embedding.py"),
            (r"input\('\[Press.*\]'\)", "None", "src/train.py"),
            (r"\.pt'\)\n    return model", ".pt', weights_only=False)\n    return model", "src/utils.py"),
        ),
        needs=("sklearn", "scipy"),
    ),
    Program(
        "speaker-verification",
        "HarryVolek/PyTorch_Speaker_Verification",
        "train_speech_embedder.py",
        directory="",
        parts=("train_speech_embedder.py", "data_load.py", "hparam.py", "speech_embedder_net.py", "utils.py", "config"),
        data={"train_tisv": data.arrays(**{f"speaker{number}": (20, 40, 180) for number in range(24)})},
        edits=(
            SEEDS,
            (r'device: "cuda"', 'device: "cpu"', "config/config.yaml"),
            (r"epochs: 950", "epochs: 4", "config/config.yaml"),
            (r"hidden: 768", "hidden: 256", "config/config.yaml"),
            (r"log_interval: 30", "log_interval: 2", "config/config.yaml"),
            (r"import librosa", "librosa = None", "utils.py"),
            (r"yaml\.load_all\(stream\)", "yaml.safe_load_all(stream)", "hparam.py"),
        ),
        masks=(*TIMES, r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}"),
        needs=("yaml",),
    ),
    Program(
        "ltsf-dlinear",
        "cure-lab/LTSF-Linear",
        "run_longExp.py",
        (
            "--is_training=1",
            "--model_id=e",
            "--model=DLinear",
            "--data=ETTh1",
            "--root_path=ett",
            "--itr=1",
            "--train_epochs=2",
            "--num_workers=2",
        ),
        directory="",
        parts=("run_longExp.py", "exp", "data_provider", "layers", "models", "utils"),
        data={"ett": data.csv_series("ETTh1.csv", 14_400)},
        edits=(_NO_INF,),
        masks=(*TIMES, r"cost time: [\d.]+", r"[\d.]+s/iter"),
        needs=("pandas", "sklearn", "matplotlib"),
    ),
    Program(
        "ltsf-autoformer",
        "cure-lab/LTSF-Linear",
        "run_longExp.py",
        (
            "--is_training=1",
            "--model_id=e",
            "--model=Autoformer",
            "--data=ETTh1",
            "--root_path=ett",
            "--itr=1",
            "--train_epochs=1",
            "--num_workers=1",
            "--d_model=64",
            "--d_ff=128",
            "--train_only=1",
        ),
        directory="",
        parts=("run_longExp.py", "exp", "data_provider", "layers", "models", "utils"),
        data={"ett": data.csv_series("ETTh1.csv", 14_400)},
        edits=(_NO_INF, (r"border2s = \[12 \* 30 \* 24,", "border2s = [1300,", "data_provider/data_loader.py")),
        masks=(*TIMES, r"cost time: [\d.]+", r"[\d.]+s/iter"),
        needs=("pandas", "sklearn", "matplotlib"),
    ),
)

_SEEING = (
    Program(
        "maml-omniglot",
        "dragen1860/MAML-Pytorch",
        "omniglot_train.py",
        ("--epoch=21", "--task_num=8"),
        directory="",
        parts=("omniglot_train.py", "meta.py", "learner.py", "omniglotNShot.py", "omniglot.py"),
        data={"omniglot": data.arrays(omniglot=(1250, 20, 1, 28, 28))},
        edits=(
            (r"torch\.device\('cuda'\)", "torch.device('cpu')"),
            (r"1000//args\.task_num", "40//args.task_num"),
            (r"astype\(np\.int\)", "astype(np.int64)", "omniglotNShot.py"),
            (r"astype\(np\.int\)", "astype(np.int64)", "omniglotNShot.py"),
        ),
        needs=("torchvision",),
    ),
    Program(
        "pointnet-cls",
        "fxia22/pointnet.pytorch",
        "utils/train_classification.py",
        ("--dataset=shapes", "--nepoch=2", "--batchSize=16", "--workers=2", "--num_points=500"),
        directory="",
        parts=("utils/train_classification.py", "pointnet", "misc"),
        data={"shapes": data.point_clouds(160, 2500)},
        edits=(NO_CUDA, (r"random\.randint\(1, 10000\)", "1")),
        needs=("plyfile",),
        differs="the workers draw the points from a generator that is not seeded",
    ),
    Program(
        "supcon",
        "HobbitLong/SupContrast",
        "main_supcon.py",
        ("--model=resnet18", "--batch_size=16", "--num_workers=1", "--epochs=1", "--print_freq=1"),
        directory="",
        parts=("main_supcon.py", "util.py", "losses.py", "networks"),
        data={"datasets": data.cifar10(120, 20)},
        edits=(
            SEEDS,
            _NO_NEW_WRITER,
            (
                r"(?m)^from torchvision import transforms, datasets$",
                "from torchvision import transforms, datasets; datasets.cifar.check_integrity = lambda *_: True",
            ),
        ),
        masks=(*TIMES, r"(BT|DT) [\d.]+ \([\d.]+\)", r"total time [\d.]+"),
        needs=("torchvision",),
    ),
    Program(
        "retinaface",
        "biubug6/Pytorch_Retinaface",
        "train.py",
        ("--training_dataset=faces/label.txt", "--num_workers=1"),
        directory="",
        parts=("train.py", "data", "layers", "models", "utils/box_utils.py", "utils/__init__.py"),
        data={"faces": data.faces(48)},
        edits=(
            NO_CUDA,
            (r"'batch_size': 32", "'batch_size': 4", "data/config.py"),
            (r"'epoch': 250", "'epoch': 1", "data/config.py"),
            (r"'image_size': 640", "'image_size': 320", "data/config.py"),
            (r"'pretrain': True", "'pretrain': False", "data/config.py"),
        ),
        masks=(*TIMES, r"Batchtime: [\d.]+", r"ETA: [\d:]+"),
        needs=("cv2", "torchvision"),
        differs="the workers change the pictures with a generator that is not seeded",
    ),
    Program(
        "diffusion-unconditional",
        "dome272/Diffusion-Models-pytorch",
        "ddpm.py",
        directory="",
        parts=("ddpm.py", "modules.py", "utils.py"),
        data={"pictures": data.pictures("one", count=60, size=96)},
        edits=(
            SEEDS,
            (r"noise_steps=1000", "noise_steps=6"),
            (r"args\.epochs = 500", "args.epochs = 2"),
            (r"args\.image_size = 64", "args.image_size = 16"),
            (r'r"C:.*?"', '"pictures"'),
            (r'args\.device = "cuda"', 'args.device = "cpu"'),
            (r'time_dim=256, device="cuda"', 'time_dim=256, device="cpu"', "modules.py"),
            (r"self\.size = size", "self.size = size // 4", "modules.py"),
        ),
        needs=("torchvision", "matplotlib", "tensorboard"),
    ),
    Program(
        "srcnn",
        "yjn870/SRCNN-pytorch",
        "train.py",
        ("--train-file=h5/train.h5", "--eval-file=h5/eval.h5", "--outputs-dir=out", "--num-epochs=3"),
        directory="",
        parts=("train.py", "models.py", "datasets.py", "utils.py"),
        data={"h5": data.patches(480, 2)},
        needs=("h5py",),
    ),
)

_NUMBERS = (
    Program(
        "pytorch-fm",
        "rixwew/pytorch-fm",
        "examples/main.py",
        (
            "--dataset_name=movielens1M",
            "--dataset_path=movies/ratings.dat",
            "--model_name=dfm",
            "--epoch=4",
            "--device=cpu",
            "--save_dir=.",
        ),
        directory="",
        parts=("examples/main.py", "torchfm"),
        data={"movies": data.ratings("ratings.dat", 60_000)},
        edits=(
            SEEDS,
            (r"np\.int\)", "np.int64)", "torchfm/dataset/movielens.py"),
            (r"np\.long", "np.int64", "torchfm/dataset/movielens.py"),
            (r"np\.long", "np.int64", "torchfm/dataset/movielens.py"),
        ),
        needs=("pandas", "sklearn", "lmdb"),
    ),
    Program(
        "kge-rotate",
        "DeepGraphLearning/KnowledgeGraphEmbedding",
        "codes/run.py",
        (
            "--do_train",
            "--do_test",
            "--data_path=graph",
            "--model=RotatE",
            "-de",
            "-n=32",
            "-b=128",
            "-d=100",
            "-adv",
            "-cpu=2",
            "--max_steps=120",
            "-save=saved",
        ),
        directory="",
        parts=("codes",),
        data={"graph": data.triples(4000, 20, 8000, 40)},
        edits=(
            SEEDS,
            (r"np\.in1d", "np.isin", "codes/dataloader.py"),
            (r"np\.in1d", "np.isin", "codes/dataloader.py"),
        ),
        masks=(*TIMES, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
        needs=("sklearn",),
        differs="the workers draw negatives from a generator that is not seeded",
    ),
    Program(
        "planar-flow",
        "kamenbliznashki/normalizing_flows",
        "planar_flow.py",
        ("--train", "--target_potential=u_z1", "--flow_length=32", "--n_steps=500", "--output_dir=out"),
        directory="",
        parts=("planar_flow.py",),
        needs=("matplotlib",),
    ),
    Program(
        "maf-moons",
        "ikostrikov/pytorch-flows",
        "main.py",
        ("--dataset=MOONS", "--flow=maf", "--epochs=2"),
        directory="",
        parts=("main.py", "flows.py", "utils.py", "datasets"),
        data={"images": data.names("empty", 0)},
        edits=((r"n_samples=30000", "n_samples=30000, random_state=0", "datasets/moons.py"),),
        needs=("sklearn", "h5py", "pandas", "tensorboardX", "matplotlib"),
    ),
    Program(
        "soft-actor-critic",
        "pranz24/pytorch-soft-actor-critic",
        "main.py",
        ("--env-name=Pendulum-v1", "--start_steps=300", "--num_steps=1000", "--eval="),
        directory="",
        parts=("main.py", "sac.py", "model.py", "replay_memory.py", "utils.py"),
        edits=_NEW_GYM,
        needs=("gymnasium", "tensorboard"),
    ),
)

_NO_LIST = r"loss\.data\[0\]", "loss.item()"
"""Written for PyTorch 0.3, where a loss had one dimension."""
_FURTHER = (
    Program(
        "gomoku-zero",
        "junxiaosong/AlphaZero_Gomoku",
        "train.py",
        directory="",
        parts=("train.py", "game.py", "mcts_pure.py", "mcts_alphaZero.py", "policy_value_net_pytorch.py"),
        edits=(
            (r"from policy_value_net import", "from policy_value_net_pytorch import"),
            (r"n_playout = 400", "n_playout = 100"),
            (r"batch_size = 512", "batch_size = 128"),
            (r"game_batch_num = 1500", "game_batch_num = 9"),
            (*SEEDS, "policy_value_net_pytorch.py"),
            (r"loss\.data\[0\], entropy\.data\[0\]", "loss.item(), entropy.item()", "policy_value_net_pytorch.py"),
        ),
    ),
    Program(
        "federated",
        "AshwinRJ/Federated-Learning-PyTorch",
        "src/federated_main.py",
        ("--model=cnn", "--epochs=4", "--num_users=20", "--frac=0.2", "--local_ep=2", "--verbose=0"),
        parts=("src",),
        data={"data/mnist": data.mnist(4000, 500), "save/objects": data.names("empty", 0)},
        edits=(SEEDS, (r"args\.gpu_id", "args.gpu")),
        masks=(*TIMES, r"Total Run Time: [\d.]+"),
        needs=("torchvision", "tensorboardX", "tqdm"),
    ),
    Program(
        "dgcnn",
        "WangYueFt/dgcnn",
        "pytorch/main.py",
        ("--num_points=256", "--batch_size=8", "--test_batch_size=8", "--epochs=2", "--emb_dims=256"),
        data={"pytorch/data/modelnet40_ply_hdf5_2048": data.clouds_in_hdf5(96, 16, 512)},
        edits=(
            (r"num_workers=8", "num_workers=1"),
            (r"num_workers=8", "num_workers=1"),
            (r"torch\.device\('cuda'\)", "torch.device('cpu')", "pytorch/model.py"),
        ),
        needs=("h5py", "sklearn"),
        differs="the workers draw from a generator that is not seeded",
    ),
    Program(
        "set-transformer",
        "juho-lee/set_transformer",
        "run.py",
        ("--num_steps=120", "--test_freq=60", "--num_bench=10"),
        edits=(
            NO_CUDA,
            (r"import numpy as np", "import numpy as np; np.random.seed(0)"),
            (r"torch\.load\(benchfile\)", "torch.load(benchfile, weights_only=False)"),
        ),
        needs=("matplotlib", "tqdm"),
    ),
    Program(
        "notears-mlp",
        "xunzheng/notears",
        "notears/nonlinear.py",
        directory="",
        parts=("notears",),
        edits=((r"200, 5, 9, 'ER'", "400, 10, 20, 'ER'"),),
        needs=("scipy", "igraph"),
    ),
    Program(
        "neural-turing-machine",
        "loudinthecloud/pytorch-ntm",
        "train.py",
        ("-pnum_batches=150", "-pbatch_size=8", "--report-interval=25", "--checkpoint-interval=0"),
        parts=("train.py", "ntm", "tasks"),
        edits=tuple(
            (
                r"from attr import attrs, attrib, Factory",
                "from attr import attrs, Factory, ib; attrib = lambda convert=None, **k: ib(converter=convert, **k)",
                f"tasks/{task}.py",
            )
            for task in ("copytask", "repeatcopytask")
        ),
        masks=(*TIMES, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+", r"Time: \d+"),
        needs=("attr", "argcomplete"),
    ),
    Program(
        "lstnet",
        "laiguokun/LSTNet",
        "main.py",
        ("--data=sensors.txt", "--save=model.pt", "--epochs=3", "--hidCNN=50", "--hidRNN=50"),
        parts=("main.py", "utils.py", "Optim.py", "models"),
        data={"": data.columns("sensors.txt", 2600, 30)},
        edits=(
            (r"Y \* scale\)\.data\[0\]", "Y * scale).item()"),
            (r"Y \* scale\)\.data\[0\]", "Y * scale).item()"),
            _NO_LIST,
            (r"torch\.load\(f\)", "torch.load(f, weights_only=False)"),
            (r"\(self\.P - self\.Ck\)/self\.skip", "int((self.P - self.Ck)/self.skip)", "models/LSTNet.py"),
        ),
    ),
    Program(
        "cavia-sine",
        "lmzintgraf/cavia",
        "regression/main.py",
        ("--n_iter=250",),
        parts=("regression",),
        masks=(*TIMES, r"\(time [\d.]+\)"),
        needs=("scipy", "torchvision", "matplotlib"),
    ),
    Program(
        "pointer-net",
        "shirgur/PointerNet",
        "Train.py",
        ("--train_size=640", "--batch_size=64", "--nof_epoch=6", "--nof_points=8", "--hiddens=256"),
        directory="",
        parts=("Train.py", "PointerNet.py", "Data_Generator.py"),
        edits=(
            SEEDS,
            (r"num_workers=4", "num_workers=1"),
            *(_NO_LIST,) * 3,
            (r"encoder_hidden\[0\]\[-2:\]", "tuple(encoder_hidden[0][-2:])", "PointerNet.py"),
            (r"encoder_hidden\[1\]\[-2:\]", "tuple(encoder_hidden[1][-2:])", "PointerNet.py"),
            (r"\.byte\(\)", ".bool()", "PointerNet.py"),
        ),
        masks=(*TIMES, r"[\d.]+(data|solve|Batch)/s", r"\d\d:\d\d"),
        needs=("tqdm",),
    ),
    Program(
        "unet-lesions",
        "LeeJunHyun/Image_Segmentation",
        "main.py",
        ("--num_workers=1",),
        parts=("main.py", "solver.py", "data_loader.py", "evaluation.py", "network.py"),
        data={"dataset": data.lesions("train", "valid", "test", count=14)},
        edits=(
            (r"(?m)^import random$", "import random; random.seed(0); import torch; torch.manual_seed(0)"),
            (r"\[100,150,200,250\]", "[2]"),
            (r"best_unet_score = 0\.", "best_unet_score = -1.", "solver.py"),
            (
                r"int\(256\*aspect_ratio\)-int\(256\*aspect_ratio\)%16,256",
                "int(64*aspect_ratio)-int(64*aspect_ratio)%16,64",
                "data_loader.py",
            ),
        ),
        needs=("torchvision",),
        differs="the workers change the pictures with a generator that is not seeded",
    ),
    Program(
        "wavenet",
        "vincentherrmann/pytorch-wavenet",
        "train_script.py",
        directory="",
        parts=(
            "train_script.py",
            "wavenet_model.py",
            "wavenet_modules.py",
            "wavenet_training.py",
            "audio_data.py",
            "model_logging.py",
        ),
        data={
            "train_samples/bach_chaconne": data.sounds("dataset.npz", 2, 4_000_000),
            "snapshots": data.names("empty", 0),
        },
        edits=(
            (r"layers=10", "layers=7"),
            (r"blocks=3", "blocks=2"),
            (r"skip_channels=1024", "skip_channels=256"),
            (r"TensorboardLogger\(log_interval=200", "Logger(log_interval=20"),
            (r'log_dir="logs/chaconne_model"\)', "trainer=None)"),
            (r"epochs=10", "epochs=1"),
            (*SEEDS, "wavenet_training.py"),
            (r"num_workers=8", "num_workers=1", "wavenet_training.py"),
            (r"iter\(self\.dataloader\)", "__import__('itertools').islice(self.dataloader, 70)", "wavenet_training.py"),
            (*_NO_LIST, "wavenet_training.py"),
            (r"import tensorflow as tf", "tf = None", "model_logging.py"),
            (r"import scipy\.misc", "import scipy", "model_logging.py"),
            (
                r"ConstantPad1d\(target_size, dimension, value, pad_start\)\(input\)",
                "F.pad(input, (target_size - input.size(2), 0) if pad_start else (0, target_size - input.size(2)))",
                "wavenet_modules.py",
            ),
            (r"import librosa as lr", "lr = None", "audio_data.py"),
        ),
        needs=("scipy",),
    ),
    Program(
        "tree-lstm",
        "dasguptar/treelstm.pytorch",
        "main.py",
        ("--epochs=2",),
        parts=("main.py", "config.py", "treelstm"),
        data={"data/sick": data.trees(150, 40), "checkpoints": data.names("empty", 0)},
        masks=(*TIMES, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+"),
        needs=("tqdm",),
    ),
    Program(
        "hamiltonian-net",
        "greydanus/hamiltonian-nn",
        "experiment-pend/train.py",
        ("--verbose", "--total_steps=1000"),
        parts=("experiment-pend", "hnn.py", "nn_models.py", "utils.py"),
        edits=(
            (r"samples=50", "samples=24", "experiment-pend/data.py"),
            (r"import scipy, scipy\.misc,", "import scipy,", "utils.py"),
        ),
        needs=("autograd", "scipy", "imageio"),
    ),
    Program(
        "vq-vae",
        "MishaLaskin/vqvae",
        "main.py",
        ("--n_updates=60", "--n_hiddens=64", "--log_interval=20"),
        parts=("main.py", "utils.py", "models", "datasets"),
        data={"data": data.cifar10(50_000, 100)},
        edits=(
            SEEDS,
            (
                r"(?m)^import torchvision\.datasets as datasets$",
                "import torchvision.datasets as datasets; datasets.cifar.check_integrity = lambda *_: True",
                "utils.py",
            ),
            (r"training_data\.train_data", "training_data.data", "utils.py"),
        ),
        needs=("torchvision",),
    ),
    Program(
        "relational-inference",
        "ethanfetaya/NRI",
        "train.py",
        ("--epochs=3", "--batch-size=32", "--encoder-hidden=128", "--decoder-hidden=128"),
        parts=("train.py", "utils.py", "modules.py"),
        data={"data": data.particles(640, 64), "logs": data.names("empty", 0)},
        edits=(
            *((r"\.data\[0\]\)", ".item())"),) * 9,
            (r"np\.float\(", "float(", "utils.py"),
        ),
    ),
    Program(
        "latent-ode",
        "YuliaRubanova/latent_ode",
        "run_models.py",
        ("--latent-ode", "--niters=8", "-n=60", "-b=24", "--timepoints=60"),
        directory="",
        parts=(
            "run_models.py",
            "lib",
            "mujoco_physics.py",
            "physionet.py",
            "person_activity.py",
            "generate_timeseries.py",
        ),
        edits=((r"from scipy\.stats import kde", "kde = None", "lib/plotting.py"),),
        masks=(*TIMES, r"[Ee]xperiment \d+", r"experiment_\d+"),
        needs=("torchdiffeq", "sklearn", "pandas", "matplotlib"),
    ),
)

_VARIED = (
    Program(
        "gru4rec",
        "hungpthanh/GRU4REC-pytorch",
        "main.py",
        ("--data_folder=data", "--train_data=train.txt", "--valid_data=valid.txt", "--n_epochs=2"),
        parts=("main.py", "lib"),
        data={"data": data.sessions("train.txt", "valid.txt", count=2500, items=8000)},
        masks=(*TIMES, r"/\d{8}/", r"_DIR=.*"),
        needs=("pandas", "tqdm"),
    ),
    Program(
        "social-gan",
        "agrimgupta92/sgan",
        "scripts/train.py",
        (
            *"--dataset_name=zara1 --delim=tab --d_type=local --pred_len=8 --encoder_h_dim_g=32".split(),
            *"--encoder_h_dim_d=64 --decoder_h_dim=32 --embedding_dim=16 --bottleneck_dim=32 --mlp_dim=64".split(),
            *"--noise_dim=8 --noise_mix_type=global --pool_every_timestep=0 --l2_loss_weight=1".split(),
            *"--batch_size=32 --d_steps=2 --checkpoint_every=10 --num_epochs=0 --num_iterations=40 --best_k=10".split(),
            *"--clipping_threshold_g=1.5 --restore_from_checkpoint=0 --use_gpu=0 --loader_num_workers=1".split(),
        ),
        directory="",
        parts=("scripts", "sgan"),
        data={"datasets/zara1": data.walkers("train", "val", frames=180)},
        edits=(
            NO_CUDA,
            (r"obs_traj\.view\(-1, 2\)", "obs_traj.reshape(-1, 2)", "sgan/models.py"),
        ),
        differs="the labels of its discriminator are smoothed by a generator that is not seeded",
    ),
    Program(
        "graph-isomorphism",
        "weihua916/powerful-gnns",
        "main.py",
        ("--dataset=RINGS", "--epochs=15"),
        parts=("main.py", "util.py", "models"),
        data={"dataset": data.graph_texts("RINGS", 600)},
        edits=((r"(?m)^    print\('loading data'\)$", "    random.seed(0)", "util.py"),),
        needs=("networkx", "sklearn", "tqdm"),
    ),
    Program(
        "glow",
        "rosinality/glow-pytorch",
        "train.py",
        ("--batch=8", "--iter=25", "--n_flow=8", "--n_block=3", "--img_size=32", "data"),
        parts=("train.py", "model.py"),
        data={"data": data.pictures("a", count=160, size=64), "sample": data.names("empty", 0)},
        edits=(
            SEEDS,
            (r"num_workers=4", "num_workers=1"),
            (r"num_workers=4", "num_workers=1"),
            (r"i % 10000 == 0", "i % 10000 == 9999"),
        ),
        needs=("torchvision", "scipy", "tqdm"),
        differs="the workers turn the pictures with a generator that is not seeded",
    ),
    Program(
        "ppo-pendulum",
        "nikhilbarhate99/PPO-PyTorch",
        "train.py",
        parts=("train.py", "PPO.py"),
        edits=(
            SEEDS,
            (r"(?m)^import gym$", "import gymnasium as gym"),
            (r"(?m)^import roboschool$", ""),
            (r'"RoboschoolWalker2d-v1"', '"Pendulum-v1"'),
            (r"max_ep_len = 1000 ", "max_ep_len = 200 "),
            (r"int\(3e6\)", "16000"),
            (r"state = env\.reset\(\)", "state, _ = env.reset(seed=i_episode)"),
            (r"reward, done, _ = env\.step\(action\)", "reward, done, cut, _ = env.step(action); done = done or cut"),
        ),
        masks=(*TIMES, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r": +\d:\d\d:\d\d"),
        needs=("gymnasium",),
    ),
    Program(
        "nerf",
        "yenchenlin/nerf-pytorch",
        "run_nerf.py",
        (
            *"--expname=lego --datadir=data/lego --dataset_type=blender --no_batching --use_viewdirs".split(),
            *"--white_bkgd --N_samples=32 --N_importance=32 --N_rand=64 --netwidth=64 --netwidth_fine=64".split(),
        ),
        parts=(
            "run_nerf.py",
            "run_nerf_helpers.py",
            "load_llff.py",
            "load_blender.py",
            "load_deepvoxels.py",
            "load_LINEMOD.py",
        ),
        data={"data/lego": data.views(20, 400)},
        edits=(
            (r"(?m)^import torch *$", "import torch; torch.manual_seed(0)"),
            (r"torch\.cuda\.FloatTensor", "torch.FloatTensor"),
            (r"N_iters = 200000 \+ 1", "N_iters = 300 + 1"),
            (r"import cv2", "cv2 = None", "load_blender.py"),
            (r"import cv2", "cv2 = None", "load_LINEMOD.py"),
        ),
        needs=("imageio", "configargparse", "matplotlib", "tqdm"),
    ),
    Program(
        "dcrnn",
        "chnsh/DCRNN_PyTorch",
        "dcrnn_train_pytorch.py",
        ("--config_filename=data/roads/settings.yaml",),
        parts=("dcrnn_train_pytorch.py", "lib", "model"),
        data={"data/roads": data.traffic(60, 640, 64)},
        edits=(
            (r"yaml\.load\(f\)", "yaml.safe_load(f)"),
            (
                r"(?m)^import yaml$",
                "import yaml; import torch; torch.manual_seed(0); import numpy; numpy.random.seed(0)",
            ),
            (r"import tensorflow as tf", "tf = None", "lib/utils.py"),
        ),
        masks=(*TIMES, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+", r"bs_32_\d+"),
        needs=("yaml", "scipy", "tensorboard"),
    ),
    Program(
        "world-model",
        "ctallec/world-models",
        "trainmdrnn.py",
        ("--logdir=logs",),
        parts=("trainmdrnn.py", "models", "data", "utils"),
        data={"datasets/carracing": data.drives(8, 64), "logs/vae": data.autoencoder()},
        edits=(
            SEEDS,
            (r"epochs = 30", "epochs = 1"),
            (r"torch\.load\(vae_file\)", "torch.load(vae_file, weights_only=False)"),
            (r"num_workers=8", "num_workers=1"),
            (r"num_workers=8", "num_workers=1"),
            (r"(?m)^import gym$", "", "utils/misc.py"),
            (r"(?m)^import gym\.envs\.box2d$", "", "utils/misc.py"),
            (r"(?m)^gym\.envs\.box2d\.car_racing\.STATE_W.*$", "", "utils/misc.py"),
            (r"\[:-600\]", "[:-2]", "data/loaders.py"),
            (r"\[-600:\]", "[-2:]", "data/loaders.py"),
        ),
        needs=("torchvision", "tqdm"),
    ),
    Program(
        "n-beats",
        "philipperemy/n-beats",
        "examples/trainer_pytorch.py",
        ("--task=dummy", "--disable-plot"),
        parts=("examples/trainer_pytorch.py", "examples/data.py", "nbeats_pytorch"),
        edits=(SEEDS, (r"max_grad_steps = 10000\n    if", "max_grad_steps = 50\n    if")),
        needs=("matplotlib",),
    ),
    Program(
        "kan",
        "KindXiaoming/pykan",
        "drivers/kan_fit.py",
        parts=("kan",),
        needs=("sklearn", "sympy", "pandas", "seaborn", "matplotlib", "tqdm", "yaml"),
    ),
)

_REPLAY = (
    "{name: np.random.randn(100000, width) for name, width in (('observations', 11), ('actions', 3), "
    "('next_observations', 11), ('rewards', 1), ('terminals', 1))}"
)
_FIELDS = (
    Program(
        "sasrec",
        "pmixer/SASRec.pytorch",
        "python/main.py",
        ("--dataset=visits", "--train_dir=out", "--device=cpu", "--maxlen=50", "--num_epochs=20"),
        parts=("python/main.py", "python/model.py", "python/utils.py"),
        data={"python/data": data.visits("visits.txt", 300, 600)},
        edits=(SEEDS,),
        differs="three processes draw the batches, and the fastest one's comes first",
    ),
    Program(
        "graphsage",
        "williamleif/graphsage-simple",
        "drivers/graphsage_train.py",
        parts=("graphsage",),
        edits=((r"_sample\(to_neigh,", "_sample(sorted(to_neigh),", "graphsage/aggregators.py"),),
    ),
    Program(
        "td3-bc",
        "sfujim/TD3_BC",
        "main.py",
        ("--max_timesteps=600", "--eval_freq=1000000"),
        parts=("main.py", "TD3_BC.py", "utils.py"),
        edits=(
            (r"(?m)^import gym$", "from types import SimpleNamespace as Box"),
            (r"(?m)^import d4rl$", ""),
            (r"gym\.make\(args\.env\)", "None"),
            (r"(?m)^\tenv\.seed\(args\.seed\)$", ""),
            (r"(?m)^\tenv\.action_space\.seed\(args\.seed\)$", ""),
            (r"env\.observation_space\.shape\[0\]", "11"),
            (r"env\.action_space\.shape\[0\]", "3"),
            (r"float\(env\.action_space\.high\[0\]\)", "1.0"),
            (r"d4rl\.qlearning_dataset\(env\)", _REPLAY),
        ),
    ),
    Program(
        "diffwave",
        "lmnt-com/diffwave",
        "drivers/diffwave_train.py",
        directory="src",
        parts=("src/diffwave",),
        edits=((r"import torchaudio", "torchaudio = None", "src/diffwave/dataset.py"),),
        needs=("tqdm", "tensorboard"),
    ),
    Program(
        "egnn",
        "vgsatorras/egnn",
        "main_nbody.py",
        ("--epochs=6", "--outf=logs"),
        parts=(
            "main_nbody.py",
            "models/gcl.py",
            "n_body_system/__init__.py",
            "n_body_system/model.py",
            "n_body_system/dataset_nbody.py",
        ),
        data={"n_body_system/dataset": data.bodies(2000, 300)},
        edits=((r"(?m)^import torch *$", "import torch; torch.manual_seed(0)"),),
    ),
    Program(
        "informer",
        "zhouhaoyi/Informer2020",
        "main_informer.py",
        (
            *"--model=informer --data=ETTh1 --root_path=data/ett/ --train_epochs=1 --itr=1 --d_model=128".split(),
            *"--d_ff=256 --seq_len=96 --label_len=48 --pred_len=24".split(),
        ),
        parts=("main_informer.py", "data", "exp", "models", "utils"),
        data={"data/ett": data.csv_series("ETTh1.csv", 4000)},
        edits=(
            SEEDS,
            (r"np\.Inf", "np.inf", "utils/tools.py"),
            (r"12\*30\*24, 12\*30\*24\+4\*30\*24, 12\*30\*24\+8\*30\*24", "1200, 1600, 2000", "data/data_loader.py"),
            (
                r"12\*30\*24 - self\.seq_len, 12\*30\*24\+4\*30\*24 - self\.seq_len",
                "1200 - self.seq_len, 1600 - self.seq_len",
                "data/data_loader.py",
            ),
        ),
        needs=("pandas",),
    ),
    Program(
        "raft",
        "princeton-vl/RAFT",
        "demo.py",
        ("--path=frames", "--small"),
        parts=("demo.py", "core"),
        data={"frames": data.pictures("a", count=9, size=192)},
        edits=(
            (r"(?m)^import torch *$", "import torch; torch.manual_seed(0)"),
            (r"import cv2", "cv2 = None"),
            (r"DEVICE = 'cuda'", "DEVICE = 'cpu'"),
            (r"model\.load_state_dict\(torch\.load\(args\.model\)\)", "pass"),
            (r"os\.path\.join\(args\.path, '\*\.jpg'\)", "os.path.join(args.path, 'a', '*.jpg')"),
            (r"cv2\.imshow.*", "print(img_flo.shape, int(img_flo.sum()))"),
            (r"cv2\.waitKey\(\)", "pass"),
        ),
        needs=("scipy", "PIL"),
    ),
    Program(
        "dlrm",
        "facebookresearch/dlrm",
        "dlrm_s_pytorch.py",
        (
            *"--arch-sparse-feature-size=16 --arch-mlp-bot=13-64-16 --arch-mlp-top=128-64-1".split(),
            "--arch-embedding-size=10000-20000-5000-8000-3000-1000-500-12000",
            *"--mini-batch-size=64 --num-batches=120 --num-indices-per-lookup=10 --print-freq=40".split(),
            *"--print-time --nepochs=2".split(),
        ),
        parts=(
            "dlrm_s_pytorch.py",
            "dlrm_data_pytorch.py",
            "data_utils.py",
            "data_loader_terabyte.py",
            "extend_distributed.py",
            "mlperf_logger.py",
            "optim",
            "tricks",
        ),
        edits=((r"(?m)^import torch\n", "import torch; torch.manual_seed(0)\n"),),
        needs=("sklearn", "tqdm", "tensorboard"),
    ),
)

_NO_SCREEN = (
    r"import cv2",
    (
        "cv2 = __import__('types').SimpleNamespace(FONT_HERSHEY_DUPLEX=0, putText=lambda *_, **__: None, "
        "imshow=lambda *_: None, waitKey=lambda _: -1)"
    ),
)
_UNSEEN = (
    Program(
        "simgnn",
        "benedekrozemberczki/SimGNN",
        "src/main.py",
        ("--epochs=50", "--batch-size=16"),
        directory="",
        parts=("src", "dataset"),
        edits=((r"(?m)^import random$", "import random; random.seed(0); torch.manual_seed(0)", "src/simgnn.py"),),
        needs=("torch_geometric", "texttable", "tqdm"),
    ),
    Program(
        "lightgcn",
        "gusye1234/LightGCN-PyTorch",
        "code/main.py",
        ("--dataset=lastfm", "--epochs=11", "--tensorboard=0"),
        parts=("code", "data/lastfm"),
        masks=(*TIMES, r"Sample:[\d.]+"),
        needs=("tensorboardX", "sklearn", "pandas", "scipy", "tqdm"),
    ),
    Program(
        "neural-collaborative",
        "guoyang9/NCF",
        "main.py",
        ("--epochs=2",),
        parts=("main.py", "config.py", "data_utils.py", "evaluate.py", "model.py"),
        data={"data": data.rated("ml-1m", 1200, 1500)},
        edits=(
            NO_CUDA,
            (r"num_workers=4", "num_workers=1"),
            (r"from tensorboardX import SummaryWriter", "numpy_seed = np.random.seed(0)"),
            (r"'/home/share/guoyangyang/recommendation/NCF-Data/'", "'data/'", "config.py"),
        ),
        needs=("pandas", "scipy"),
        masks=(*TIMES, r"is: .*"),
    ),
    Program(
        "tcn-words",
        "locuslab/TCN",
        "TCN/word_cnn/word_cnn_test.py",
        ("--cuda", "--epochs=1", "--data=words", "--emsize=128", "--nhid=128", "--log-interval=10"),
        parts=("TCN/tcn.py", "TCN/__init__.py", "TCN/word_cnn"),
        data={"TCN/word_cnn/words": data.text("train.txt", "valid.txt", "test.txt", words=18_000, vocabulary=9000)},
        edits=(
            (r"model = torch\.load\(f\)", "model = torch.load(f, weights_only=False)"),
            (r", volatile=evaluation\)", ")", "TCN/word_cnn/utils.py"),
        ),
    ),
    Program(
        "tcn-music",
        "locuslab/TCN",
        "TCN/poly_music/music_test.py",
        ("--cuda", "--epochs=1", "--data=Nott"),
        parts=("TCN/tcn.py", "TCN/__init__.py", "TCN/poly_music"),
        edits=(
            (r"import numpy as np", "import numpy as np; np.random.seed(0)"),
            (r'torch\.load\(open\(model_name, "rb"\)\)', 'torch.load(open(model_name, "rb"), weights_only=False)'),
        ),
        needs=("scipy",),
    ),
    Program(
        "tetris",
        "uvipen/Tetris-deep-Q-learning-pytorch",
        "train.py",
        ("--num_epochs=60", "--replay_memory_size=2000"),
        parts=("train.py", "src", "trained_models"),
        edits=(
            (
                r"from random import random, randint, sample",
                "from random import random, randint, sample, seed; seed(0)",
            ),
            (*_NO_SCREEN, "src/tetris.py"),
        ),
        needs=("PIL", "matplotlib", "tensorboardX"),
    ),
)

_LATEST = (
    Program(
        "session-graph",
        "CRIPAC-DIG/SR-GNN",
        "pytorch_code/main.py",
        ("--epoch=3",),
        data={"datasets/sample": data.clicked(4000, 800, items=309)},
        edits=((r"import pickle", "import pickle, torch, numpy; torch.manual_seed(0); numpy.random.seed(0)"),),
        masks=(*TIMES, r"(?m)^start .*$"),
        needs=("networkx",),
    ),
    Program(
        "sequence-gan",
        "suragnair/seqGAN",
        "main.py",
        parts=(
            "main.py",
            "generator.py",
            "discriminator.py",
            "helpers.py",
            "oracle_EMBDIM32_HIDDENDIM32_VOCAB5000_MAXSEQLEN20.trc",
            "oracle_samples.trc",
        ),
        edits=(
            (r"import pdb\n\nimport torch", "import pdb\n\nimport torch; torch.manual_seed(0)"),
            (r"MLE_TRAIN_EPOCHS = 100", "MLE_TRAIN_EPOCHS = 2"),
            (r"ADV_TRAIN_EPOCHS = 50", "ADV_TRAIN_EPOCHS = 4"),
            (r"POS_NEG_SAMPLES = 10000", "POS_NEG_SAMPLES = 640"),
            (r"oracle, 50, 3\)", "oracle, 2, 2)"),
            (
                r"train_generator_PG\(gen, gen_optimizer, oracle, dis, 1\)",
                "train_generator_PG(gen, gen_optimizer, oracle, dis, 8)",
            ),
            (r"oracle, 5, 3\)", "oracle, 1, 1)"),
            (r"torch.load\(oracle_samples_path\)", "torch.load(oracle_samples_path)[:POS_NEG_SAMPLES]"),
        ),
    ),
    Program(
        "capsule-graph",
        "benedekrozemberczki/CapsGNN",
        "src/main.py",
        ("--epochs=25", "--batch-size=8"),
        directory="",
        parts=("src", "input/train", "input/test"),
        data={"output": data.names("there.txt", 0)},
        edits=(
            (r"(?m)^import random$", "import random; random.seed(0)", "src/capsgnn.py"),
            (r"(?m)^import torch$", "import torch; torch.manual_seed(0)", "src/capsgnn.py"),
            (r"torch.nn.Conv1d\(", "torch.nn.Conv2d(", "src/layers.py"),
            (r"\t\t\tb_ij", "            b_ij", "src/layers.py"),
        ),
        needs=("torch_geometric", "texttable", "tqdm", "pandas"),
    ),
    Program(
        "attention-walk",
        "benedekrozemberczki/AttentionWalk",
        "src/main.py",
        ("--epochs=80", "--edge-path=./input/chameleon_edges.csv"),
        directory="",
        parts=("src", "input"),
        data={"output": data.names("there.txt", 0)},
        edits=((r"(?m)^import torch$", "import torch; torch.manual_seed(0)", "src/attentionwalk.py"),),
        needs=("networkx", "texttable", "tqdm", "pandas", "scipy"),
    ),
    Program(
        "named-entities",
        "jiesutd/NCRFpp",
        "main.py",
        ("--config", "demo.train.config"),
        parts=("main.py", "demo.train.config", "model", "utils", "sample_data"),
        edits=(
            (r"iteration=1\b", "iteration=12", "demo.train.config"),
            (r"word_emb_dir=sample", "#word_emb_dir=sample", "demo.train.config"),
        ),
        masks=(*TIMES, r"speed: [\d.]+st/s"),
    ),
    Program(
        "graph-forecast",
        "nnzhan/MTGNN",
        "train_single_step.py",
        (
            "--device=cpu",
            "--data=data/series.txt",
            "--num_nodes=24",
            "--subgraph_size=8",
        ),
        parts=("train_single_step.py", "util.py", "net.py", "layer.py", "trainer.py"),
        data={"data": data.series("series.txt", 900, 24), "model": data.names("there.txt", 0)},
        edits=(
            (r"import torch\n", "import torch; torch.manual_seed(0)\n"),
            (r"import numpy as np", "import numpy as np; np.random.seed(0)"),
            (r"model = torch.load\(f\)", "model = torch.load(f, weights_only=False)"),
            (r"set_num_threads\(3\)", "set_num_threads(1)"),
            (r"for i in range\(10\)", "for i in range(1)"),
        ),
        needs=("scipy",),
    ),
    Program(
        "click-model",
        "chenxijun1029/DeepFM_with_PyTorch",
        "main.py",
        directory="",
        parts=("main.py", "model", "data/__init__.py", "data/dataset.py"),
        data={"data": data.advertisements(10_000)},
        edits=(SEEDS,),
        needs=("pandas",),
    ),
    Program(
        "knowledge-tracing",
        "arghosh/AKT",
        "main.py",
        ("--max_iter=2",),
        directory="",
        parts=("main.py", "akt.py", "run.py", "load_data.py", "utils.py"),
        data={"data/assist2009_pid": data.answers("assist2009_pid", 300, 72)},
        edits=((r"(?m)^    checkpoint = torch.load\(os", "    checkpoint = torch.load(weights_only=False, f=os"),),
        needs=("sklearn",),
    ),
    Program(
        "glimpses",
        "kevinzakka/recurrent-visual-attention",
        "main.py",
        ("--use_gpu=false", "--epochs=6"),
        directory="",
        parts=("main.py", "model.py", "modules.py", "trainer.py", "config.py", "data_loader.py", "utils.py"),
        data={"data": data.mnist(6000, 100)},
        edits=((r"from tensorboard_logger import configure, log_value", "configure = log_value = None", "trainer.py"),),
        masks=(*TIMES, r"\d+:\d+", r"\|.*\|"),
        needs=("torchvision", "matplotlib", "tqdm"),
    ),
)

PROGRAMS = (
    *_EXAMPLES,
    *_LANGUAGE,
    *_GAMES,
    *_IMAGES,
    *_GRAPHS,
    *_PROBABILITY,
    *_FRAMEWORKS,
    *_SEQUENCES,
    *_SEEING,
    *_NUMBERS,
    *_FURTHER,
    *_VARIED,
    *_FIELDS,
    *_UNSEEN,
    *_LATEST,
)


def edited(source: str, pattern: str, replacement: str) -> str:
    """The source after an edit, which has to match and to keep the number of lines."""
    text, count = re.subn(pattern, replacement, source, count=1)
    if not count:
        raise LookupError(f"the program has nothing like {pattern!r}: it is not the version that the table knows")
    assert text.count("\n") == source.count("\n"), f"{pattern!r} moves the lines"
    return text
