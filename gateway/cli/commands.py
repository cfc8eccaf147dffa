"""The commands. What they do is imported when they run: help has to be quick."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.keys import keys

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
experts = typer.Typer(invoke_without_command=True)
app.add_typer(experts, name="experts", help="List the experts, add one that runs elsewhere, forget one.")
app.add_typer(keys, name="keys")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HUGGINGGPT_URL",
        metavar="URL",
        help="The gateway. Unset: the one at http://127.0.0.1:8080 or, if none runs, a house started for this command.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


class Policy(StrEnum):
    """Whether bytes may leave the house."""

    LOCAL = "local"
    OPEN = "open"


class Mode(StrEnum):
    """Which models do the work."""

    LOCAL = "local"
    HYBRID = "hybrid"
    REMOTE = "remote"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            version = metadata.version("hugginggpt")
        except metadata.PackageNotFoundError:
            version = "(run from its folder, not installed)"
        typer.echo(f"hugginggpt {version}")
        raise typer.Exit


@app.callback()
def hugginggpt(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A sentence becomes a plan of model tasks, experts run them, an answer comes back.

    [bold]Try[/]

      hugginggpt ask "Read the text in this image aloud" --file sign.png

      hugginggpt up           then open http://127.0.0.1:8080/docs

      hugginggpt tasks        what it can do

    Settings come from the environment: HUGGINGGPT_HOME (where it keeps things; ~/.hugginggpt), HUGGINGGPT_URL
    (the gateway to ask; http://127.0.0.1:8080), and LLM_BASE_URL, LLM_MODEL and LLM_API_KEY (an OpenAI-compatible
    endpoint that plans, chooses and answers; none).
    """


@app.command()
def ask(
    request: Annotated[str, typer.Argument(help="What to do, in words. May be left out with --plan.")] = "",
    *,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file to send; repeat it for more. 100 MB together."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files made go.")] = Path("out"),
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run this plan instead of making one: what ask --json printed.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no byte leaves the house. Unset: as the gateway is set up.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="local: only the house's own models; remote: only others; hybrid: others where its own are missing or "
            "fail. Unset: as the selector is set up."
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="When the run must have ended.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where an earlier run gave its result already.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Ask for something, watch it being done, get the answer and the files.

    [bold]Examples[/]

      hugginggpt ask "What does this letter say, and when is it due?" --file letter.pdf

      hugginggpt ask "Find the faces and blur the picture" --file party.jpg --out faces

      hugginggpt ask "Summarise this" --file notes.txt --json > run.json

      hugginggpt ask --plan run.json --file other-notes.txt

    Exit status: 0 completed; 1 any other end; 2 asked wrongly; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import asking, terminal

    question = asking.Question(
        request, file or [], out, url, policy and policy.value, mode and mode.value, plan, timeout, fresh
    )
    with terminal.problems_told():
        answered = asking.ask(question, terminal.view(as_json=as_json))
        terminal.tell(answered, as_json=as_json)
        if answered.unsaved:
            raise answered.unsaved
    raise typer.Exit(0 if answered.run.completed else 1)


@app.command()
def up(
    experts: Annotated[str, typer.Option(metavar="NAMES", help="Experts to run on this machine, by comma.")] = "lite",
    orchestrators: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to answer HTTP. [127.0.0.1:8080]")
    ] = None,
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to answer gRPC. [127.0.0.1:50051]")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole log.")] = False,
) -> None:
    """Start the house here and keep it running until Ctrl-C.

    [bold]Examples[/]

      hugginggpt up

      hugginggpt up --orchestrators 2 --http 127.0.0.1:8090
    """
    from gateway.cli import standing, terminal

    options = ["--experts", experts, "--orchestrators", str(orchestrators)]
    for name, value in (("--http", http), ("--grpc", grpc)):
        options += [name, value] if value else []
    with terminal.problems_told():
        status = standing.stand(options, verbose=verbose)
    raise typer.Exit(status)


@app.command()
def tasks(url: Url = None, as_json: Json = False) -> None:
    """List the kinds of task that can be planned now."""
    from gateway.cli import catalogue, terminal

    with terminal.problems_told():
        catalogue.show("/v1/tasks", catalogue.tasks, url, as_json=as_json)


@app.command()
def models(url: Url = None, as_json: Json = False) -> None:
    """List the models that can be chosen now."""
    from gateway.cli import catalogue, terminal

    with terminal.problems_told():
        catalogue.show("/v1/models", catalogue.models, url, as_json=as_json)


@app.command()
def doctor(url: Url = None, as_json: Json = False) -> None:
    """Look for what is wrong, and say what helps. Exit status 1 if something is.

    An LLM endpoint that LLM_BASE_URL names is asked three or four questions, one of them as long as LLM_CONTEXT_TOKENS
    lets prompts be; what that took is told.
    """
    from gateway.cli import doctor as examination
    from gateway.cli import terminal

    with terminal.problems_told():
        well = examination.examine(url, as_json=as_json)
    raise typer.Exit(0 if well else 1)


@app.command("check-expert")
def check_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it answers.")],
    *,
    every_model: Annotated[
        bool, typer.Option("--every-model", help="Ask every model of every task, not only one of each task.")
    ] = False,
    policy: Annotated[
        Policy, typer.Option(help="open: ask models outside the house, too, and send them samples.")
    ] = Policy.LOCAL,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long one call may take.")] = 300.0,
    pid: Annotated[
        int | None, typer.Option(metavar="PROCESS", help="End this process, the expert's, to see how it ends.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Call an expert as the house would, and tell what holds. Exit status 1 if something does not.

    Tried are its description and health, each task with a small sample, calls that are wrong in one way each,
    deadlines, callers that leave, more calls than it takes, and with --pid its end. Samples and results go through the
    artifact store that ARTIFACTS_URL names, which has to be the expert's.

    [bold]Examples[/]

      python -m experts.host my_expert &

      hugginggpt check-expert 127.0.0.1:50051 --pid $!
    """
    from gateway.cli import terminal
    from gateway.cli.promises import checking

    wanted = checking.Wanted(address, every_model, policy is Policy.OPEN, timeout, pid)
    with terminal.problems_told():
        well = checking.check(wanted, as_json=as_json)
    raise typer.Exit(0 if well else 1)


@experts.callback()
def experts_or_list(context: typer.Context) -> None:
    """List the experts, add one that runs elsewhere, forget one."""
    if context.invoked_subcommand is None:
        list_experts()


@experts.command("list")
def list_experts(url: Url = None, as_json: Json = False) -> None:
    """List the experts known, awake or not, and what is wrong with any."""
    from gateway.cli import catalogue, terminal

    with terminal.problems_told():
        catalogue.show("/v1/experts", catalogue.experts, url, as_json=as_json)


@experts.command("add")
def add_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it answers.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call the address. Unset: made from the address.")
    ] = None,
) -> None:
    """Make an expert that runs elsewhere known to the house on this machine; it is used within seconds.

    [bold]Example[/]

      hugginggpt experts add 127.0.0.1:50061 --name mine
    """
    from gateway.cli import addresses, terminal

    with terminal.problems_told():
        typer.echo(f"added {addresses.add(address, name)}: {address}")


@experts.command("forget")
def forget_expert(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="As experts list shows it, by name or address, or as it was added."),
    ],
    url: Url = None,
) -> None:
    """Forget an expert: its address, and what is remembered of it while it sleeps."""
    from gateway.cli import addresses, terminal

    with terminal.problems_told():
        addresses.forget(name, url)
        typer.echo(f"forgotten {name}")
