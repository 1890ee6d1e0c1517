#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: ansible-core 2.19.0, meta/argument_specs.yml of a role
# Expected: as with a module, "-e agreed=false" of an option of type bool becomes False, and a default is set
# Seen: both are checked and nothing more: agreed is the text "false", which is true in Python; the default is undefined
# Source: Ansible's documentation, "Role argument validation"; ansible.builtin.validate_argument_spec
# Here: the actions of the collection convert their arguments, tests/ansible/test_plugins.py
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet ansible-core==2.19.0
mkdir -p roles/one/meta roles/one/tasks
cat > roles/one/meta/argument_specs.yml <<'EOF'
argument_specs:
  main:
    options:
      agreed: {type: bool}
      other: {type: int, default: 1}
EOF
cat > roles/one/tasks/main.yml <<'EOF'
- ansible.builtin.debug:
    msg: "agreed is {{ agreed | type_debug }} {{ agreed }}, other is {{ 'set' if other is defined else 'undefined' }}"
EOF
printf -- '- hosts: localhost\n  gather_facts: false\n  roles: [one]\n' > play.yml
LC_ALL=C.UTF-8 ANSIBLE_LOCALHOST_WARNING=false tools/bin/ansible-playbook play.yml -e agreed=false > out.txt 2>&1
seen=$(sed -n 's/.*"msg": "\(.*\)".*/\1/p' out.txt)
echo "$seen"
[ "$seen" = "agreed is str false, other is undefined" ]
