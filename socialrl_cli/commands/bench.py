"""`socialrl bench`: how fast the parts are on this machine, as JSON."""

from __future__ import annotations

import typer

app = typer.Typer(help="Measure the speed of the parts, as JSON.", no_args_is_help=True)

Json = typer.Option(True, "--json", help="Print one JSON document (always).")


@app.command("envs")
def envs(
    seconds: float = typer.Option(2.0, "--seconds", help="How long each part is timed.", min=0.1),
    concurrent: int = typer.Option(1000, "--concurrent", help="Episodes in flight at once.", min=1),
    json: bool = Json,
) -> None:
    """Decisions a second of scripted games in one process.

    \b
    Example: socialrl bench envs
    """
    from socialrl_cli.bench.envs import envs_bench

    _print(envs_bench(seconds, concurrent))


@app.command("engine")
def engine(
    model: str = typer.Option(
        "", "--model", help="A model (default: a random one of 2 M parameters, which cannot play the part games)."
    ),
    threads: int = typer.Option(1, "--threads", help="Threads that torch computes with.", min=1),
    batch: list[int] = typer.Option([32, 64, 128], "--batch", help="Batch sizes of `generate`; repeat."),
    rounds: int = typer.Option(3, "--rounds", help="Rounds of each comparison, in turn.", min=1),
    part: list[str] = typer.Option([], "--part", help="Only this part; repeat (default: all)."),
    continuous: bool = typer.Option(True, help="Also time transformers' own continuous batching, which is slow."),
    json: bool = Json,
) -> None:
    """Tokens a second of the embedded engine beside transformers' generate.

    \b
    Example: socialrl bench engine --threads 1 --batch 64
    """
    from scenarios.errors import UsageError, nearest
    from socialrl_cli.bench.engine import PARTS, engine_bench
    from socialrl_cli.models import resolve

    if unknown := [name for name in part if name not in PARTS]:
        raise UsageError(f"no part {unknown[0]!r}; {nearest(unknown[0], PARTS)}")
    if "games" in part and not model:
        raise UsageError("the part games needs a model that plays: --model run:runs/quickstart/ppo")
    folder = resolve(model) if model else ""
    _print(
        engine_bench(folder, threads=threads, batches=batch, rounds=rounds, parts=part or PARTS, continuous=continuous)
    )


@app.command("proxy")
def proxy(
    requests: int = typer.Option(2000, "--requests", help="Requests of one measurement.", min=100),
    rounds: int = typer.Option(3, "--rounds", help="Rounds, direct and through the proxy in turn.", min=1),
    json: bool = Json,
) -> None:
    """What recording costs, in process and over HTTP beside the same upstream directly.

    \b
    Example: socialrl bench proxy
    """
    from socialrl_cli.bench.proxy import proxy_bench

    _print(proxy_bench(requests=requests, rounds=rounds))


@app.command("train")
def train(
    model: str = typer.Option("tiny", "--model", help="The actor: tiny, a folder or a hub id."),
    critic: str = typer.Option("", "--critic", help="The critic (default: a copy of the actor)."),
    sequences: int = typer.Option(16, "--sequences", help="Rows of a step.", min=1),
    prompt_tokens: int = typer.Option(64, "--prompt-tokens", help="Context tokens of a row.", min=1),
    new_tokens: int = typer.Option(64, "--new-tokens", help="Own tokens of a row.", min=1),
    skewed: bool = typer.Option(False, "--skewed", help="Rows of very different lengths."),
    steps: int = typer.Option(5, "--steps", help="Timed steps.", min=1),
    threads: int = typer.Option(1, "--threads", help="Threads that torch computes with.", min=1),
    lora_rank: int = typer.Option(0, "--lora-rank", help="Train LoRA adapters of this rank; 0: all weights.", min=0),
    dtype: str = typer.Option("float32", "--dtype", help="float32 or bfloat16."),
    part: list[str] = typer.Option([], "--part", help="Only sft, ppo_actor or ppo_critic; repeat (default: all)."),
    json: bool = Json,
) -> None:
    """Tokens a second and memory of sft and of ppo's actor and critic.

    \b
    Example: socialrl bench train --model tiny --sequences 32
    Example: socialrl bench train --model tiny --part ppo_actor --skewed
    """
    from scenarios.errors import UsageError, nearest
    from socialrl_cli.bench.train import PARTS, train_bench
    from socialrl_cli.models import resolve

    if unknown := [name for name in part if name not in PARTS]:
        raise UsageError(f"no part {unknown[0]!r}; {nearest(unknown[0], PARTS)}")

    _print(
        train_bench(
            resolve(model), critic=resolve(critic, critic=True) if critic else "", sequences=sequences,
            prompt_tokens=prompt_tokens, new_tokens=new_tokens, skewed=skewed, steps=steps, threads=threads,
            lora_rank=lora_rank, dtype=dtype, parts=part or PARTS,
        )
    )  # fmt: skip


def _print(document: object) -> None:
    from socialrl_cli.output import emit

    emit(document, as_json=True)
