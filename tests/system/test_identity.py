"""Who belongs to which tenant, where systemd really says it."""
import bed
import node
from node import MIB


def setup():
    node.prepare()


def test_a_unit_pattern_finds_the_tenant():
    with node.worker('chat-a.service', 8 * MIB) as client:
        bed.equal((client['tenant'], client['unit']), ('chat', 'chat-a.service'))


def test_an_instance_of_a_template_is_found_by_its_pattern():
    with node.worker('chat-x@7.service', 8 * MIB) as client:
        bed.equal((client['tenant'], client['unit']), ('chat', 'chat-x@7.service'))


def test_a_cgroup_pattern_finds_the_tenant():
    with node.worker('other.service', 8 * MIB, properties=['Slice=pool.slice']) as client:
        bed.equal((client['tenant'], client['unit']), ('pool', 'other.service'))


def test_a_unit_goes_before_a_later_cgroup_rule():
    with node.worker('chat-b.service', 8 * MIB, properties=['Slice=pool.slice']) as client:
        bed.equal(client['tenant'], 'chat')


def test_a_user_in_no_such_unit_is_found_by_uid():
    with node.worker('some.service', 8 * MIB, properties=['User=nobody']) as client:
        bed.equal((client['tenant'], client['uid']), ('nobody', 65534))


def test_another_unit_belongs_to_nobody_and_is_told_what_was_seen():
    out = refused('stranger.service')
    bed.contains(out, "no tenant is configured for uid 0, gid 0, unit 'stranger.service', cgroup "
                 "'/system.slice/stranger.service'")


def test_a_name_that_only_contains_the_pattern_is_another():
    bed.contains(refused('not-chat-a.service'), "unit 'not-chat-a.service'")


def test_an_environment_that_claims_a_unit_counts_for_nothing():
    out = refused('liar.service', 'Environment=SYSTEMD_UNIT=chat-a.service GMB_TENANT=chat')
    bed.contains(out, "unit 'liar.service'")


def test_two_processes_of_a_tenant_share_its_limit():
    with node.worker('chat-a.service', 128 * MIB), \
            bed.transient('chat-b.service', '/usr/bin/python3', node.WORKER, str(128 * MIB), '0',
                          properties=environment() + ['RemainAfterExit=yes']):
        bed.wait_for('refusal', lambda: 'MemoryMax' in bed.journal('chat-b.service'))


def environment(*more):
    return [f'Environment=GMB_SIM_DIR={node.SIM}', *more]


def refused(unit, *properties):
    """What a worker in that unit says when it is refused."""
    with bed.transient(unit, '/usr/bin/python3', node.WORKER, str(8 * MIB),
                       properties=environment(*properties)):
        return bed.wait_for('refusal', lambda: line(unit))


def line(unit):
    text = bed.journal(unit)
    return text if 'refused:' in text else None


if __name__ == '__main__':
    setup()
    bed.main()
