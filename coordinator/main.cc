// coordinator --program=lib.so: runs the Train of any program.
#include "program/stock_main.h"

int main(int argc, char** argv) {
  return divvy::StockMain(argc, argv, "coordinator", divvy::Role::kChief);
}
