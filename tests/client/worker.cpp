// As examples/worker.c, with owners that give back by themselves.
#include <gmb.h>

#include <cstring>
#include <iostream>
#include <memory>

namespace
{
constexpr uint64_t mib = uint64_t{1} << 20;
constexpr uint64_t patience_ns = 5000000000;

struct session_end {
    void operator()(gmb_session *session) const
    {
        gmb_disconnect(session);
    }
};
struct lease_end {
    void operator()(gmb_lease *lease) const
    {
        gmb_lease_release(lease);
    }
};

template <typename function> function symbol(const gmb_session *session, const char *name)
{
    return reinterpret_cast<function>(gmb_driver_symbol(session, name));
}

int fail(const char *what)
{
    std::cerr << what << ": " << gmb_error_text() << '\n';
    return 1;
}
} // namespace

int main()
{
    gmb_session *connected = nullptr;
    gmb_lease *taken = nullptr;
    char sent[] = "written before the lease grew", received[sizeof(sent)] = "";

    if (gmb_connect(nullptr, &connected) != 0)
        return fail("connect");
    std::unique_ptr<gmb_session, session_end> session(connected);

    gmb_lease_params params = {};
    params.size = sizeof(params);
    params.bytes = 4 * mib;
    params.max_bytes = 64 * mib;
    params.wait_ns = patience_ns;
    if (gmb_lease_new(session.get(), &params, &taken) != 0)
        return fail("lease");
    std::unique_ptr<gmb_lease, lease_end> lease(taken);

    auto set_current = symbol<int (*)(void *)>(session.get(), "cuCtxSetCurrent");
    auto to_device =
        symbol<int (*)(uint64_t, const void *, size_t)>(session.get(), "cuMemcpyHtoD_v2");
    auto to_host = symbol<int (*)(void *, uint64_t, size_t)>(session.get(), "cuMemcpyDtoH_v2");
    if (set_current(gmb_lease_context(lease.get())) != 0 ||
        to_device(gmb_lease_address(lease.get()), sent, sizeof(sent)) != 0)
        return 1;
    if (gmb_lease_grow(lease.get(), 4 * mib, patience_ns) != 0)
        return fail("grow");
    if (to_host(received, gmb_lease_address(lease.get()), sizeof(received)) != 0)
        return 1;
    std::cout << gmb_tenant(session.get()) << ": " << gmb_lease_bytes(lease.get()) / mib
              << " MiB of " << gmb_driver(session.get()) << " memory, \"" << received << "\"\n";
    return std::strcmp(sent, received);
}
