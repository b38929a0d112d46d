/*
 * A generation counter tells a child of fork(2) at the cost of a load; the pid tells one of a bare
 * clone(2), which runs no handlers.
 *
 * The handlers hold every session's lock over the fork, so that no list is torn in the child, where
 * the threads that were changing it don't exist.
 */
#include "client/fork.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list registry = {&registry, &registry};
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
atomic_uint fork_generation;

static void fork_prepare(void)
{
    (void) pthread_mutex_lock(&registry_lock);
    list_for_each(session, &registry, struct gmb_session, registered)(void)
        pthread_mutex_lock(&session->lock);
}

static void fork_done(void)
{
    list_for_each(session, &registry, struct gmb_session, registered)(void)
        pthread_mutex_unlock(&session->lock);
    (void) pthread_mutex_unlock(&registry_lock);
}

static void fork_child(void)
{
    atomic_fetch_add(&fork_generation, 1);
    fork_done();
}

static void fork_handlers_install(void)
{
    /* Can fail for want of memory: the pid then tells. */
    (void) pthread_atfork(fork_prepare, fork_done, fork_child);
}

void fork_guard_add(struct gmb_session *session)
{
    (void) pthread_once(&registry_once, fork_handlers_install);
    session->generation = atomic_load(&fork_generation);
    session->pid = getpid();
    (void) pthread_mutex_lock(&registry_lock);
    list_append(&registry, &session->registered);
    (void) pthread_mutex_unlock(&registry_lock);
}

void fork_guard_remove(struct gmb_session *session)
{
    (void) pthread_mutex_lock(&registry_lock);
    list_remove(&session->registered);
    (void) pthread_mutex_unlock(&registry_lock);
}

bool fork_guard_same(const struct gmb_session *session)
{
    return session->generation == atomic_load(&fork_generation) && session->pid == getpid();
}

int fork_guard_check(const struct gmb_session *session, struct outcome *outcome)
{
    if (fork_guard_same(session))
        return 0;
    return outcome_set(outcome, GMB_E_FORKED,
        "this session belongs to process %d, which forked this one: connect anew",
        (int) session->pid);
}
