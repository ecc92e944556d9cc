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

PROGRAMS = (*_EXAMPLES, *_LANGUAGE, *_GAMES, *_IMAGES, *_GRAPHS, *_PROBABILITY, *_FRAMEWORKS)


def edited(source: str, pattern: str, replacement: str) -> str:
    """The source after an edit, which has to match and to keep the number of lines."""
    text, count = re.subn(pattern, replacement, source, count=1)
    if not count:
        raise LookupError(f"the program has nothing like {pattern!r}: it is not the version that the table knows")
    assert text.count("\n") == source.count("\n"), f"{pattern!r} moves the lines"
    return text
