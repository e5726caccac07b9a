#include "program/main.h"

int main(int argc, char** argv) { return divvy::Main(argc, argv); }
