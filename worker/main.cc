// worker --program=lib.so: a worker of any program.
#include "program/main.h"

int main(int argc, char** argv) { return divvy::StockMain(argc, argv, "worker", "worker"); }
