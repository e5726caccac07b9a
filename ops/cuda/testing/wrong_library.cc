// A library that is not Divvy's, or that lacks a function that is needed.
#ifdef MISSING_PART
extern "C" int a_part_of_cuda_that_is_not_there();
int part = a_part_of_cuda_that_is_not_there();
#endif
