/* Tells at configure time whether nvcc works here. */
extern "C" __global__ void probe(unsigned *counter)
{
    atomicAdd(counter, 1);
}
