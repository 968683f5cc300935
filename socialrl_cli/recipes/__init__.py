"""TOML files, one per experiment that we stand behind."""

# What a recipe of each command is read as.
CONFIGS = {
    "rollout": "socialrl_cli.rollouts:RolloutConfig",
    "eval": "socialrl_cli.evals:EvalConfig",
    "train sft": "socialrl_cli.training:SftRun",
    "train ppo": "socialrl_cli.training:PpoRun",
}
