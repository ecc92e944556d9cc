"""The values that a diagnosis consists of: findings, evidence, notes, pictures. All are saved as they are."""
