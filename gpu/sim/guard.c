/*
 * A fault on simulated device memory is a signal of this process. The first guarded run installs
 * one handler each for SIGSEGV and SIGBUS. A thread inside sim_guard() jumps out; every other fault
 * goes to the handler that was there before, or takes the default action, which ends the process as
 * it would have without us.
 *
 * Limits: a handler that the application installs later replaces ours, and unless it calls the one
 * that it replaced, a faulting kernel ends the process instead of giving 700. An application's own
 * use of alternate signal stacks is kept (SA_ONSTACK).
 */
#include "gpu/sim/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction previous[ARRAY_SIZE(signals)];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Where this thread goes on after a fault; NULL outside of sim_guard(). In static TLS, since the
 * handler may run on a thread for which no other was set up yet, and that would allocate. */
static _Thread_local sigjmp_buf *volatile guard_exit __attribute__((tls_model("initial-exec")));

static void chain(int number, siginfo_t *info, void *context)
{
    const struct sigaction *next = &previous[number == SIGBUS ? 1 : 0];

    if ((next->sa_flags & SA_SIGINFO) != 0) {
        next->sa_sigaction(number, info, context);
    } else if (next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) {
        next->sa_handler(number);
    } else {
        /* The kernel doesn't let a fault be ignored: default action in both cases, taken when the
         * instruction is run again (or, for a signal that was sent, when it is sent again). */
        struct sigaction fall_back = {.sa_handler = SIG_DFL};

        (void) sigaction(number, &fall_back, NULL);
        if (info->si_code <= 0)
            (void) raise(number);
    }
}

static void fault(int number, siginfo_t *info, void *context)
{
    sigjmp_buf *landing = guard_exit;

    /* si_code <= 0: somebody sent the signal, no instruction of ours faulted. */
    if (landing != NULL && info->si_code > 0) {
        guard_exit = NULL;
        siglongjmp(*landing, 1);
    }
    chain(number, info, context);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    (void) sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        (void) sigaction(signals[i], &action, &previous[i]);
}

bool sim_guard(void (*run)(void *argument), void *argument)
{
    sigjmp_buf landing;

    (void) pthread_once(&once, install);
    if (sigsetjmp(landing, 1) != 0)
        return false;
    guard_exit = &landing;
    run(argument);
    guard_exit = NULL;
    return true;
}
