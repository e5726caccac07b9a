// worker --program=lib.so: a worker of any program.
#include "program/stock_main.h"

int main(int argc, char** argv) {
  return divvy::StockMain(argc, argv, "worker", divvy::Role::kWorker);
}
