"""The league: widegp beside other models on every shared table, under one protocol.

    tables.py, distributions.py, scores.py      what a model gets, gives back, and is scored by
    models/                                     one file for each family of models
    plan.py, sensitivity.py, ablation.py, scaling.py    which jobs there are, the most telling first
    job.py, run.py, records.py                  one job in a process; many of them; the CSV they end in
    ranks.py, figures.py, page.py               docs/league.md, from the CSV alone

``make league`` runs it for hours and goes on where it stopped; ``make league-quick`` takes a quarter of an
hour.
"""
