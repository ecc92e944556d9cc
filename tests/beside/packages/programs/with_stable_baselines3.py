from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=16, n_epochs=4, seed=0, device="cpu")
model.learn(total_timesteps=256)
print(model.logger.name_to_value["train/loss"])
