"""All commands of hugginggpt. The client is imported when a command runs, so that --help is fast."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import batches, pipelines, records, runs, terminal
from gateway.cli.bulk import bulk
from gateway.cli.catalog import models, tasks
from gateway.cli.check_expert import check_expert
from gateway.cli.compare import compare
from gateway.cli.experts import experts
from gateway.cli.keys import keys
from gateway.cli.options import ApiKey, Files, Json, Mode, Out, Pin, PlanFile, Policy, Url, complete_runs
from gateway.cli.trace import trace
from gateway.cli.up import up
from gateway.cli.webhooks import webhooks

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(experts, name="experts")
app.add_typer(keys, name="keys")
app.add_typer(webhooks, name="webhooks")


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        try:
            version = metadata.version("hugginggpt")
        except metadata.PackageNotFoundError:
            version = "(running from its source folder, not installed)"
        typer.echo(f"hugginggpt {version}")
        raise typer.Exit


@app.callback()
def hugginggpt(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Turn a request into a plan of model tasks, run the tasks, and return an answer.

    [bold]Examples[/]

      hugginggpt ask "Read this aloud" --file sign.png --save aloud

      hugginggpt run aloud --file another.png

      hugginggpt up           then open http://127.0.0.1:8080

      hugginggpt tasks        lists the available tasks

    Environment variables, with their defaults: HUGGINGGPT_HOME (folder for data; ~/.hugginggpt), HUGGINGGPT_URL
    (address of the gateway; http://127.0.0.1:8080), HUGGINGGPT_API_KEY (API key; none), and LLM_BASE_URL, LLM_MODEL
    and LLM_API_KEY (an OpenAI-compatible endpoint for planning, model selection, answers and tasks; none).
    """


def ask(
    request: Annotated[
        str, typer.Argument(help="The task in plain language; - reads it from standard input. Optional with --plan.")
    ] = "",
    *,
    file: Files = None,
    out: Out = Path("out"),
    plan: PlanFile = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no data leaves the deployment. Unset: the gateway's default.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="local: only models of the deployment; remote: only external models; hybrid: external models where "
            "the deployment has none or its own fail. Unset: the selector's default."
        ),
    ] = None,
    license: Annotated[  # noqa: A002  # name of the option
        list[str] | None,
        typer.Option("--license", metavar="LICENSE", help="Only models with this license (SPDX). Repeatable."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of the run.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every task, even where the result of an earlier run could be reused.")
    ] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Only plan; hugginggpt approve then runs this plan or another one.")
    ] = False,
    continues_last: Annotated[
        bool, typer.Option("--continue", "-c", help="Continue the conversation of the last request.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Continue the conversation of this run.", autocompletion=complete_runs),
    ] = None,
    save_as: Annotated[
        str,
        typer.Option("--save", metavar="NAME", help="Save the plan as a pipeline, to run it on other files."),
    ] = "",
    pin: Pin = False,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Send a request, follow the run, print the answer and save the files. Piped input is sent as a file.

    [bold]Examples[/]

      hugginggpt ask "What does this letter say, and when is it due?" --file letter.pdf

      hugginggpt ask "How many people are in each photo?" --file 'party/*.jpg' --out faces

      cat notes.txt | hugginggpt ask "Summarise this"

      hugginggpt ask --continue "Find all dates in it"

      hugginggpt ask "Summarise this" --file notes.txt --json > run.json

      hugginggpt ask --plan run.json --file other-notes.txt

      hugginggpt ask "Read this aloud" --file sign.png --save read-aloud

    Exit status: 0 completed; 1 any other end; 2 invalid arguments; 130 cancelled with Ctrl-C.
    """
    from gateway.cli import follow, live_view
    from gateway.cli.ask import AskRequest, start_and_follow

    ask_request = AskRequest(
        request,
        file or [],
        out,
        url=url,
        api_key=api_key,
        policy=policy and policy.value,
        mode=mode and mode.value,
        licenses=license or [],
        plan=plan,
        timeout=timeout,
        fresh=fresh,
        review=review,
        continues_last=continues_last,
        after=after,
        save_as=save_as,
        pin=pin,
    )
    with terminal.problems_reported():
        followed = start_and_follow(ask_request, live_view.view(as_json=as_json))
        follow.print_result(followed, as_json=as_json)
        if problem := followed.save_problem or followed.pipeline_problem:
            raise problem
    raise typer.Exit(followed.status)


def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root", metavar="FOLDER", help="A folder to allow in addition to the client's roots. Repeatable."
        ),
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Serve the Model Context Protocol (MCP) on standard input and output.

    An MCP client starts this command. Its tools are those of the gateway at /mcp. Files in the client's roots can be
    given by path, and output files can be saved there. HUGGINGGPT_API_KEY is sent to gateways that require a key. If no
    gateway runs, local services are started for as long as the client is connected.

    [bold]Example[/] configuration of an MCP client:

      {"mcpServers": {"hugginggpt": {"command": "hugginggpt", "args": ["mcp"]}}}
    """
    from gateway.mcp.bridge import bridge

    with terminal.problems_reported():
        bridge.serve(url, api_key, root or [])


def doctor(
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
    in_cluster: Annotated[
        bool, typer.Option("--cluster", help="Check the deployment in kubectl's current context instead.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="Its namespace.")] = "hugginggpt",
) -> None:
    """Check the installation and the services, and suggest remedies. Exit status 1 if a check fails.

    If LLM_BASE_URL is set, the endpoint gets three to five requests, one of them as long as LLM_CONTEXT_TOKENS allows;
    the tokens they use are reported. With --cluster, Secrets, GPU nodes, weights, scalers, network policies and pods
    are read from the API server; nothing is changed.
    """
    from gateway.cli import doctor as diagnostics

    with terminal.problems_reported():
        is_ok = diagnostics.diagnose(url, api_key, as_json=as_json, namespace=namespace if in_cluster else None)
    raise typer.Exit(0 if is_ok else 1)


for command in (
    *(ask, up, mcp, tasks, models, doctor, check_expert),
    *(runs.watch, runs.runs, runs.approve, runs.cancel, runs.get, runs.delete),
    *(pipelines.pipelines, pipelines.show, pipelines.run, pipelines.save, pipelines.export, pipelines.import_),
    *(batches.batch, batches.resume, batches.batches, bulk),
    *(compare, records.record, records.verify, trace),
):
    app.command(command.__name__.strip("_").replace("_", "-"))(command)
