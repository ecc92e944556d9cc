"""stable-baselines3's PPO on CartPole."""

from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=512, seed=0, verbose=1, device="cpu")
model.learn(total_timesteps=5_000)
