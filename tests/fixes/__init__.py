"""How far `profkit fix --all` comes by itself, against fixes that people wrote and that were measured."""
