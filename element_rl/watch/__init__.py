"""`element watch`: a local page that follows runs while they train.

    folders.py      which runs there are, also those that begin later
    tail.py         metrics.csv, read on from where the last look ended
    bins.py         its curves, in so many points and no more
    run.py          one run: its state, how far it is, its curves and its maps
    states.py       what a run is doing, as its folder tells it
    server.py       HTTP for this machine alone
    page/           the page: its template, its style and its scripts

One thread looks at the folders, once a second; requests are answered from what it has seen. Nothing
here writes into a run's folder, and nothing keeps a run waiting.
"""
