# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Shows progress of long steps, for scripts to source.

# slow MESSAGE COMMAND… runs the command and shows progress. It prints the command's
# output only if it fails.
slow() {
	local message=$1 log start=$SECONDS shown=15 pid status=0
	shift
	log=$(mktemp)
	echo "$message"
	"$@" >"$log" 2>&1 &
	pid=$!
	# A background process doesn't get the terminal's interrupt.
	trap 'kill "$pid" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		if ((SECONDS - start >= shown)); then
			printf '  %4ds  %s\n' "$((SECONDS - start))" "$(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c 1-100)"
			shown=$((shown + 15))
		fi
	done
	wait "$pid" || status=$?
	trap - INT TERM
	if ((status)); then
		cat "$log" >&2
	else
		printf '  %4ds  done\n' "$((SECONDS - start))"
	fi
	rm -f "$log"
	return "$status"
}

# section TITLE prints the start of a section, and the elapsed time.
section() { printf '\n=== %s (after %d s)\n' "$1" "$SECONDS"; }
