# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# metrics: the newest metric in the logs of runs.

# newest_metrics RUN...: prints the run, a tab, and the last line of its log with a metric, for each that has one. A run
# may have patterns of its own, each after its names.
newest_metrics() {
  for run; do printf '\n%s %s\n' "$mark" "$run" && tail -c 16384 "$run/log" 2>/dev/null; done |
    tr '\r' '\n' | LC_ALL=C mark=$mark usual=$usual_metrics awk '
      function answer() { if (last != "") print run "\t" substr(last, 1, 1000); last = "" }
      index($0, ENVIRON["mark"] " ") == 1 {
        answer()
        dir = substr($0, length(ENVIRON["mark"]) + 2)
        count = split(dir, part, "/")
        run = part[count - 1] "/" part[count]
        own = ""
        while ((getline line <(dir "/metrics")) > 0) own = own "|" substr(line, index(line, "\t") + 1)
        wanted = tolower(own == "" ? ENVIRON["usual"] : substr(own, 2))
        next
      }
      tolower($0) ~ wanted { last = $0 }
      END { answer() }'
}
