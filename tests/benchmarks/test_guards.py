"""Promotion and drift on figures whose truth is known: right most of the time, as docs/running.md says."""

from benchmarks.guards import alarmed, promoted


def test_a_clear_gain_goes_live_and_no_gain_hardly_ever():
    assert promoted(0.03, 0.07, 20) == 1
    assert promoted(0.0, 0.07, 40) <= 0.15
    assert promoted(-0.02, 0.07, 20) == 0


def test_a_steady_shop_with_quiet_sundays_warns_in_its_first_week_only_and_half_its_lines_are_noticed():
    early, late, noticed = alarmed(0.05, 3)
    assert early <= 2
    assert late == 0
    assert noticed == 1
