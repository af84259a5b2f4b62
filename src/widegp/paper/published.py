"""The published tables, cell by cell as printed, under the labels of the paper's source.

Cells are text, so that a page can show the digits that were printed; `Published.value` gives numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

ESTIMATES = ("sigma_b2", "sigma_v2", "sigma_u2", "sigma_a2", "alpha", "w", "sigma_eps2")
"""The order of the columns in all tables of estimates."""


@dataclass(frozen=True)
class Published:
    """One table.

    label : as in the paper's source.
    keys : how many leading cells name a row.
    columns : what the other cells are; those that say no more than the row's name are left out.
    lines : one row each, cells parted by spaces.
    """

    label: str
    title: str
    keys: int
    columns: tuple[str, ...]
    lines: tuple[str, ...]

    @cached_property
    def rows(self) -> dict[tuple[str, ...], dict[str, str]]:
        """Row name -> column -> the cell as printed."""
        parts = [line.split() for line in self.lines]
        return {
            tuple(cells[: self.keys]): dict(zip(self.columns, cells[self.keys :], strict=True))
            for cells in parts
        }

    def value(self, row: tuple[str, ...], column: str) -> float:
        return float(self.rows[row][column])

    def cells(self) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """(row, column, cell), row by row."""
        for row, cells in self.rows.items():
            for column, cell in cells.items():
                yield row, column, cell


def _table(label: str, title: str, keys: int, columns: str, text: str) -> Published:
    lines = tuple(line.strip() for line in text.strip().splitlines())
    return Published(label, title, keys, tuple(columns.split()), lines)


_ESTIMATES = " ".join(ESTIMATES)

KERNELS = _table(
    "tab:corr-kernels", "Correlation of the shapes of the kernels over rho", 2, "correlation",
    """
    tanh sigmoid 0.9999
    relu leaky_relu(0.1) 0.9983
    relu leaky_relu(0.3) 0.9919
    """,
)  # fmt: skip

SCENARIOS = _table(
    "tab:cenarios_simulacao_kmix", "The simulation scenarios, with the noise calibrated from K-bar", 1,
    "design n_inputs n_rows kbar noise_sd sigma_eps2 seconds",
    """
    C1 uniform 20 10000 2.132745 0.292078 0.085310 63.72
    C2 uniform 80 10000 3.769967 0.388328 0.150799 34.90
    C3 uniform 20 20000 2.131981 0.292026 0.085279 68.46
    C4 uniform 80 20000 3.769044 0.388281 0.150762 74.07
    C5 uniform 20 50000 2.131707 0.292007 0.085268 182.54
    C6 uniform 80 50000 3.768044 0.388229 0.150722 215.66
    C7 stratified 20 50000 2.132325 0.292050 0.085293 186.13
    C8 stratified 80 50000 3.772796 0.388474 0.150912 227.50
    """,
)  # fmt: skip

SCENARIO_ESTIMATES = _table(
    "tab:map_params_50eps_anchors", "MAP estimates of the scenarios under two rules for anchors", 2,
    _ESTIMATES,
    """
    C1 first 1.025371 0.980080 0.981301 0.994972 0.508588 0.495693 8.56e-2
    C1 kmeans 1.026216 0.987962 0.995776 0.987359 0.508575 0.496666 8.29e-2
    C2 first 1.015887 1.031211 1.030972 0.968986 0.487482 0.512434 1.64e-1
    C2 kmeans 1.028323 1.032194 1.032033 0.968549 0.487544 0.511323 1.63e-1
    C3 first 1.028055 0.971542 0.972107 0.983965 0.511472 0.491441 8.64e-2
    C3 kmeans 1.023113 0.974400 0.976894 0.996529 0.510373 0.490998 8.18e-2
    C4 first 0.999669 1.031572 1.031348 0.968746 0.487415 0.511870 1.64e-1
    C4 kmeans 1.018052 1.031881 1.031831 0.968938 0.487784 0.509282 1.63e-1
    C5 first 1.028704 0.971421 0.971586 0.994188 0.511165 0.490527 8.34e-2
    C5 kmeans 1.025100 0.969336 0.969129 1.001332 0.511568 0.489583 8.21e-2
    C6 first 1.001530 1.031871 1.031808 0.969091 0.487441 0.512053 1.64e-1
    C6 kmeans 1.014398 1.031409 1.031123 0.969269 0.487602 0.511393 1.64e-1
    C7 first 1.025906 0.971412 0.971880 1.002389 0.511691 0.489485 8.32e-2
    C7 kmeans 1.024638 0.971043 0.972473 1.013075 0.512253 0.489012 8.33e-2
    C8 first 0.983979 1.031795 1.031675 0.968993 0.487443 0.512017 1.64e-1
    C8 kmeans 1.018084 1.031796 1.031743 0.969018 0.487622 0.511714 1.64e-1
    """,
)  # fmt: skip

SCENARIO_METRICS = _table(
    "tab:test_metrics_50eps_anchors", "Test scores and time of the scenarios under two rules for anchors", 2,
    "seconds mae mse rmse mese sdese",
    """
    C1 first 1.334 0.265983 0.112261 0.335053 0.236112 0.165608
    C1 kmeans 2.155 0.263822 0.110102 0.331816 0.233065 0.161552
    C2 first 1.284 0.573294 0.504148 0.710034 0.892681 0.665183
    C2 kmeans 2.514 0.534228 0.440660 0.663822 0.829185 0.585415
    C3 first 1.881 0.265764 0.110175 0.331926 0.233302 0.152864
    C3 kmeans 2.137 0.264066 0.109563 0.331004 0.229287 0.153301
    C4 first 2.101 0.571924 0.515084 0.717694 0.903406 0.718319
    C4 kmeans 2.334 0.562438 0.498106 0.705766 0.886464 0.707048
    C5 first 1.623 0.269528 0.114101 0.337789 0.233814 0.160743
    C5 kmeans 2.408 0.267161 0.111680 0.334185 0.231012 0.159149
    C6 first 1.550 0.593175 0.562680 0.750120 0.950702 0.807495
    C6 kmeans 3.511 0.566497 0.503485 0.709567 0.892490 0.718490
    C7 first 1.389 0.270088 0.115020 0.339146 0.234563 0.165507
    C7 kmeans 2.592 0.270696 0.116113 0.340753 0.237124 0.168015
    C8 first 1.335 0.583224 0.537355 0.733045 0.927608 0.777588
    C8 kmeans 1.395 0.581387 0.538477 0.733810 0.929836 0.774792
    """,
)  # fmt: skip

REPLICATIONS = _table(
    "tab:C1_reps_summary_50eps", "The 20 replications of scenario C1, k-means anchors", 1,
    "mean sd min max",
    """
    mae 0.273514 0.004816 0.263822 0.282890
    rmse 0.342126 0.005893 0.331816 0.353658
    mese 0.239397 0.004587 0.231336 0.246951
    sdese 0.167666 0.005495 0.161552 0.179720
    seconds 2.486 0.616 1.829 4.463
    sigma_eps2 0.08341 0.00142 0.08033 0.08700
    w 0.499987 0.002367 0.494409 0.504269
    alpha 0.509978 0.001317 0.508133 0.513169
    sigma_b2 1.028096 0.001465 1.025079 1.031158
    sigma_v2 0.975803 0.006260 0.963308 0.987962
    sigma_u2 0.982022 0.006519 0.969905 0.995776
    sigma_a2 0.980596 0.007583 0.965003 0.999919
    """,
)  # fmt: skip

REAL_ESTIMATES = _table(
    "tab:real_map_params_50eps", "MAP estimates on the real tables, k-means anchors", 1,
    f"n_rows n_inputs {_ESTIMATES}",
    """
    S1_super_full_all 21263 79 0.983783 1.031285 1.031180 0.969412 0.487748 0.512268 5.1759e-01
    R1_year_full_10k 10000 90 1.028279 1.032023 1.031995 0.968947 0.487489 0.512480 5.4418e-02
    R2_year_full_20k 20000 90 1.021539 1.031795 1.031790 0.969213 0.487546 0.512372 5.3020e-02
    R3_year_full_50k 50000 90 1.027704 1.032048 1.032012 0.968841 0.487509 0.512499 5.3630e-02
    """,
)  # fmt: skip

REAL_METRICS = _table(
    "tab:real_metrics_50eps", "Test scores on the real tables, in the units of the target, and time", 1,
    "n_rows n_inputs seconds mae rmse mese sdese",
    """
    S1_super_full_all 21263 79 1.521 11.996 18.464 347.035 808.186
    R1_year_full_10k 10000 90 2.141 8.151 11.346 129.177 276.568
    R2_year_full_20k 20000 90 1.593 8.483 11.578 134.426 272.604
    R3_year_full_50k 50000 90 2.266 8.551 11.614 135.163 292.555
    """,
)  # fmt: skip

REAL_SCALED = _table(
    "tab:real_metrics_z", "The same scores in units of the training target's standard deviation", 1,
    "train_sd mae_z rmse_z sigma_eps2_z sigma_eps2",
    """
    S1_super_full_all 34.231 0.350 0.539 4.417e-04 5.1759e-01
    R1_year_full_10k 11.104 0.734 1.022 4.414e-04 5.4418e-02
    R2_year_full_20k 10.957 0.774 1.057 4.416e-04 5.3020e-02
    R3_year_full_50k 11.022 0.776 1.054 4.415e-04 5.3630e-02
    """,
)  # fmt: skip

RANK_ESTIMATES = _table(
    "tab:year_full_map_params_gridN", "MAP estimates on the whole of YearPredictionMSD by rank", 1,
    _ESTIMATES,
    """
    1000 0.999745 1.031698 1.031808 0.968802 0.487477 0.512471 5.280451e-2
    1500 1.001928 1.030765 1.031028 0.969650 0.487674 0.512086 5.281479e-2
    2000 1.000840 1.031140 1.031370 0.969235 0.487561 0.512327 5.281858e-2
    2500 1.000225 1.031369 1.031605 0.968976 0.487469 0.512463 5.281404e-2
    3000 0.999901 1.031510 1.031739 0.968839 0.487441 0.512496 5.282333e-2
    3500 0.999993 1.031638 1.031865 0.968724 0.487422 0.512520 5.282105e-2
    4000 1.000136 1.031792 1.032011 0.968610 0.487406 0.512538 5.282208e-2
    4500 0.999972 1.017239 1.018181 0.978938 0.492810 0.523093 5.280713e-2
    5000 1.000011 1.022378 1.022732 0.973577 0.490332 0.518135 5.280737e-2
    """,
)  # fmt: skip

RANK_METRICS = _table(
    "tab:year_full_metrics_gridN", "Test scores and time on the whole of YearPredictionMSD by rank", 1,
    "seconds mae rmse mese sdese",
    """
    1000 5.284 7.446 10.262 105.416 231.199
    1500 10.218 7.179 10.112 102.348 247.560
    2000 16.643 7.087 9.947 98.988 248.515
    2500 28.760 7.032 10.057 101.158 276.705
    3000 41.467 6.986 9.690 93.922 231.058
    3500 61.748 6.843 9.648 93.231 236.175
    4000 92.689 6.903 9.594 92.119 239.006
    4500 139.815 7.778 10.057 101.152 283.829
    5000 179.735 7.198 9.677 93.660 247.062
    """,
)  # fmt: skip

RANK_SCALED = _table(
    "tab:year_full_metrics_z_gridN", "The same scores in units of the training target's standard deviation",
    1, "train_sd mae_z rmse_z sigma_eps2_z sigma_eps2",
    """
    1000 10.936 0.681 0.938 4.414865e-4 5.280451e-2
    1500 10.936 0.656 0.925 4.415726e-4 5.281479e-2
    2000 10.936 0.648 0.910 4.416462e-4 5.281858e-2
    2500 10.936 0.643 0.920 4.415373e-4 5.281404e-2
    3000 10.936 0.639 0.886 4.416178e-4 5.282333e-2
    3500 10.936 0.626 0.882 4.416175e-4 5.282105e-2
    4000 10.936 0.631 0.877 4.416362e-4 5.282208e-2
    4500 10.936 0.711 0.920 4.414865e-4 5.280713e-2
    5000 10.936 0.658 0.885 4.415092e-4 5.280737e-2
    """,
)  # fmt: skip

BUDGET = _table(
    "tab:budget_r_choice", "The rank under a time budget T: the largest, and that with the least error", 1,
    "r_max seconds mae rmse r_best rmse_best",
    """
    30 2500 28.760 7.032 10.057 2000 9.947
    60 3000 41.467 6.986 9.690 3000 9.690
    300 5000 179.735 7.198 9.677 4000 9.594
    """,
)  # fmt: skip

TABLES = {
    table.label: table
    for table in (
        KERNELS, SCENARIOS, SCENARIO_ESTIMATES, SCENARIO_METRICS, REPLICATIONS, REAL_ESTIMATES, REAL_METRICS,
        REAL_SCALED, RANK_ESTIMATES, RANK_METRICS, RANK_SCALED, BUDGET,
    )
}  # fmt: skip
