from pykeen.pipeline import pipeline

result = pipeline(
    dataset="Nations",
    model="TransE",
    model_kwargs={"embedding_dim": 8},
    training_kwargs={"num_epochs": 8, "batch_size": 256, "use_tqdm": False},
    evaluation_kwargs={"use_tqdm": False},
    random_seed=0,
    device="cpu",
)
print(result.losses[-1])
