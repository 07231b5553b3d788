"""clicktower serve"""

from flows.show import console


def serve(
    *,
    release: str,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    poll_seconds: float = 2.0,
    drain_seconds: int = 30,
    allow_host: list[str] | None = None,
    json: bool = False,
) -> None:
    """Answer searches over HTTP from the live release, and follow the pointer to each new one.

    / is a page for typing queries, /docs documents the API. A release that is
    published while it runs is opened beside the old one and replaces it between
    two requests; SIGTERM finishes what is under way. By default it listens on
    this machine only: there is no authentication, so put a proxy in front of it.

        clicktower serve --release release
        curl -H 'Content-Type: application/json' -d '{"query": "angle bracket"}' http://127.0.0.1:8080/v1/search

    Parameters
    ----------
    release
        The folder or URI that `publish` wrote to.
    host
        The address to listen on.
    port
        The port to listen on; 0 takes any free port.
    workers
        Processes that answer requests; each holds the release in memory.
    poll_seconds
        How often the pointer is checked.
    drain_seconds
        How long SIGTERM waits for requests under way.
    allow_host
        A host name that requests may use, besides localhost and its address; may be repeated. A service that listens
        to other machines answers to any name unless this is given.
    json
        Print where it listens as one JSON object, before it answers.
    """
    import os

    # Searches are short: a pool of threads for each would cost more than it saves. Read when NumPy is first imported.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from flows.serve.service import ServeConfig, is_loopback, listen
    from flows.serve.service import serve as run
    from schemas.release import read_release

    config = ServeConfig(
        release=release, host=host, port=port, workers=workers, poll_seconds=poll_seconds, drain_seconds=drain_seconds,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
    )  # fmt: skip
    folder, about = read_release(release)
    with listen(config) as listening:
        if not is_loopback(host):
            console.errors.print(
                f"[bold yellow]warning:[/] {console.plain(host)} can be reached from other machines, and there is no "
                "authentication: put a proxy that has it before this port",
                soft_wrap=True,
            )
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}"
        result = {"stage": "serve", "digest": about.digest, "path": folder, "reused": True, "url": url,
                  "counts": {"documents": about.num_documents}}  # fmt: skip
        console.emit(result, json, _show)
        run(config, listening)


def _show(result: dict) -> None:
    console.output.print(
        f"serving {result['counts']['documents']:,} documents of release {result['digest']} at {result['url']}",
        soft_wrap=True,
    )
