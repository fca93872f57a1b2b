#include "runtime/gvisor/enter.h"

int main(int, char** argv) { return torpor::gvisor::Enter(argv + 1); }
