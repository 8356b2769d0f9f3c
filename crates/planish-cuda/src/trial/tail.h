
extern "C" void emulate(const u32* grid, u32 threads, void** args) { launch(&EMULATED, grid, threads, args); }
