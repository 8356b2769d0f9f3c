// A bias as the library takes it: of another type, and in steps of the result.
//
// Set from outside: FROM and TO, the types.
extern "C" __global__ void __launch_bounds__(256) convert_bias(const FROM* from, TO* to, int n, float factor) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at < n) to[at] = from_f32<TO>(to_f32(from[at]) * factor);
}
