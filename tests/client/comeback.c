/* See comeback.h. */
#include "tests/client/comeback.h"

#include <string.h>

void wait_for_connection(struct script *script, int wanted)
{
    for (unsigned i = 0; gmb_connection(script->session) != wanted; i++) {
        ck_assert_uint_lt(i, 10000);
        (void) usleep(1000);
    }
}

void go_away(struct script *script)
{
    broker_close(script);
    wait_for_connection(script, GMB_CONNECTION_AWAY);
}

uint64_t hello_again(struct script *script)
{
    Gmb__ClientMessage *message;
    uint64_t id;

    broker_accept(script);
    message = broker_expect(script, GMB__CLIENT_MESSAGE__BODY_HELLO);
    ck_assert_uint_eq(message->hello->token.len, 16);
    ck_assert_int_eq(memcmp(message->hello->token.data, "a token of 16 by", 16), 0);
    id = message->id;
    message_free(message);
    return id;
}

void resumed(struct script *script, uint64_t id, uint64_t *lost, size_t count)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Resumed body = GMB__RESUMED__INIT;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_RESUMED;
    message.resumed = &body;
    body.lost = lost;
    body.n_lost = count;
    broker_send(script, &message.base, 0);
}

Gmb__ClientMessage *come_back(struct script *script)
{
    script->resumed = true;
    broker_welcome(script, hello_again(script));
    return broker_expect(script, GMB__CLIENT_MESSAGE__BODY_RESUME);
}

void come_back_to(struct script *script, size_t leases, uint32_t chunks)
{
    Gmb__ClientMessage *message = come_back(script);

    ck_assert_uint_eq(message->resume->n_held, leases);
    ck_assert(message->resume->last);
    if (leases == 1) {
        ck_assert_uint_eq(message->resume->held[0]->lease, LEASE_ID);
        ck_assert_uint_eq(message->resume->held[0]->chunks, chunks);
        ck_assert_uint_eq(message->resume->held[0]->n_runs, 0);
    }
    resumed(script, message->id, NULL, 0);
    message_free(message);
    wait_for_connection(script, GMB_CONNECTION_READY);
}
