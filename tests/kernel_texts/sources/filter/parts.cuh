__constant__ int from_header;
