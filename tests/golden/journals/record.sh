#!/bin/sh
# Records the journals of this folder anew, by real runs on the embedded default: `make journals`.
# A journal here that does not agree any more says that a program decides differently; record anew only where that is meant.
set -eu
cd "$(dirname "$0")/../../.."
bin=$PWD/.venv/bin here=$PWD/tests/golden/journals runs=$PWD/fixtures/flow-runs
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
rm -f "$here"/*.jsonl
export LOG_LEVEL=ERROR

charts() { # name of the journal, flow_run
    "$bin/tda" charts run-local --flow-run-path "$2" --state-dir "$state" --journal "$here/$1.jsonl" || test $? = 1
}

charts five_charts "$runs/five_charts.json"

# The same step again, as if its first worker had died after it wrote its manifest, and before.
run=$(ls "$state/flow_runs")
sed 's/"SUCCEEDED"/"READY"/' "$state/flow_runs/$run" > "$state/again.json"
charts five_charts_second_attempt "$state/again.json"
rm "$state"/artifacts/*/charts/*/*/manifest.json "$(ls "$state"/artifacts/*/charts/*/*/*.png | head -n 1)"
charts five_charts_second_attempt "$state/again.json"

# Refused, limited, down (which takes retries), and with a template that is not there.
for symbol in BADUSDT LIMITUSDT DOWNUSDT; do
    sed "s/BTCUSDT/$symbol/; s/\"4h\"/\"1h\"/" "$runs/five_charts.json" > "$state/$symbol.json"
    charts charts_that_fail "$state/$symbol.json"
done
charts charts_that_fail "$runs/two_steps_one_template_missing.json"

whole() { # name of the journal, flags
    name=$1 && shift
    "$bin/tda" flow run --flow-run-path "$runs/candles_charts_report.json" --state-dir "$state/$name" \
        --given "candles:4h=$PWD/fixtures/candles/BTCUSDT_4h.json" --journal "$here/$name.jsonl" "$@"
}

whole whole_flow
whole whole_flow_with_texts --journal-texts

"$bin/tda" flow apply --flow-run-path "$runs/candles_then_charts.json" --state-dir "$state" --journal "$here/orchestrator.jsonl"
"$bin/tda" flow reap --state-dir "$state" --journal "$here/orchestrator.jsonl" --assume-lease 0
