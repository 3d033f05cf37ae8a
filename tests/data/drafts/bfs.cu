#include <stdio.h>
#include <math.h>
#define MAX_THREADS_PER_BLOCK 512
int no_of_nodes;
int edge_list_size;
FILE *fp;
struct Node { int starting; int no_of_edges; };

__global__ void Kernel(Node *g_graph_nodes, int *g_graph_edges, bool *g_graph_mask, int *g_cost, int no_of_nodes)
{
    int tid = blockIdx.x * MAX_THREADS_PER_BLOCK + threadIdx.x;
    if (tid < no_of_nodes && g_graph_mask[tid]) {
        g_graph_mask[tid] = false;
        for (int i = g_graph_nodes[tid].starting; i < g_graph_nodes[tid].no_of_edges; i++)
            g_cost[g_graph_edges[i]] = g_cost[tid] + 1;
    }
}

void BFSGraph(int argc, char **argv)
{
    int num_of_blocks = 1;
    int num_of_threads_per_block = no_of_nodes;
    if (no_of_nodes > MAX_THREADS_PER_BLOCK) {
        num_of_blocks = (int)ceil(no_of_nodes / (double)MAX_THREADS_PER_BLOCK);
        num_of_threads_per_block = MAX_THREADS_PER_BLOCK;
    }
    Node *d_graph_nodes;
    int *d_graph_edges, *d_cost;
    bool *d_graph_mask;
    cudaMalloc((void **)&d_graph_nodes, sizeof(Node) * no_of_nodes);
    cudaMalloc((void **)&d_graph_edges, sizeof(int) * edge_list_size);
    cudaMalloc((void **)&d_graph_mask, sizeof(bool) * no_of_nodes);
    cudaMalloc((void **)&d_cost, sizeof(int) * no_of_nodes);
    dim3 grid(num_of_blocks, 1, 1);
    dim3 threads(num_of_threads_per_block, 1, 1);
    Kernel<<<grid, threads, 0>>>(d_graph_nodes, d_graph_edges, d_graph_mask, d_cost, no_of_nodes);
    fclose(fp);
}
