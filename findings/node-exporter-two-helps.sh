#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: prometheus-node-exporter of Debian 12 (1.5.0), two files of the textfile collector with a family of other HELP texts
# Expected: both samples, or an error in node_textfile_scrape_error
# Seen: the second file's sample is dropped, node_textfile_scrape_error is 0, and the answer is HTTP 200
# Source: prometheus/node_exporter, collector/textfile.go; prometheus/client_golang, checkMetricConsistency
# Here: HELP, TYPE and UNIT of an exported family depend on its declaration alone, calibration/exports/families.py
set -eu
command -v apt-get > /dev/null && command -v curl > /dev/null || { echo "needs apt-get and curl"; exit 3; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid"; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq prometheus-node-exporter=1.5.0-1+b6 2> log.txt
for package in *.deb; do dpkg -x "$package" .; done
mkdir files
printf '# HELP one first\n# TYPE one gauge\none{sut="a"} 1\n' > files/a.prom
printf '# HELP one second\n# TYPE one gauge\none{sut="b"} 2\n' > files/b.prom
usr/bin/prometheus-node-exporter --collector.disable-defaults --collector.textfile \
    --collector.textfile.directory=files --web.listen-address=127.0.0.1:19187 2> log.txt &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    curl --silent --noproxy '*' --output answer.txt --write-out '%{http_code}' http://127.0.0.1:19187/metrics > code.txt && break
    sleep 1
done
seen="HTTP $(cat code.txt), $(grep -c '^one{' answer.txt) of 2 samples, $(grep '^node_textfile_scrape_error' answer.txt)"
echo "$seen"
[ "$seen" = "HTTP 200, 1 of 2 samples, node_textfile_scrape_error 0" ]
