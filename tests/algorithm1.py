"""Algorithm 1 of the paper, to be read against it: dense G, dense Laplacian, float64.

Matrices are voxels x samples here, as in the paper. Slow on purpose.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg


@dataclass
class Literal:
    eigenvalues: np.ndarray  # all of them, ascending
    Y: np.ndarray  # K x T, the shared features in the paper's scaling
    maps: list  # one function per subject: voxels x samples -> K x samples
    L: np.ndarray  # the Laplacian
    dims: list  # L_i


def kernel_matrix(kernel, A, B):
    """k(a, b) for all columns a of A and b of B; kernel is a name and its hp."""
    name, hp = kernel
    if name == "linear":
        return A.T @ B
    if name == "gaussian":
        out = np.empty((A.shape[1], B.shape[1]))
        for i in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] = np.exp(-np.sum((A[:, i] - B[:, j]) ** 2) / hp)
        return out
    if name == "quadratic":
        return (A.T @ B + hp) ** 2
    if name == "sigmoid":
        return np.tanh(A.T @ B / hp)
    raise ValueError(name)


def standardize(X):
    """Step 1: zero mean along the second dimension, unit variance of each voxel."""
    mean, std = X.mean(axis=1, keepdims=True), X.std(axis=1, keepdims=True)
    return (X - mean) / std, mean, std


def algorithm_1(X, K, energies, G, kernels):
    M = len(X)
    G = np.asarray(G, dtype=np.float64)
    D = np.diag(G.sum(axis=1))
    L = D - G

    V_hat, D_hat, standardized, gram = [], [], [], []
    for i in range(M):
        Z, mean, std = standardize(np.asarray(X[i], dtype=np.float64))  # step 1
        K_i = kernel_matrix(kernels[i], Z, Z)  # step 2
        T_i = K_i.shape[0]
        J = np.ones((T_i, T_i))
        centred = K_i + J @ K_i @ J / T_i**2 - J @ K_i / T_i - K_i @ J / T_i  # step 3
        d, V = np.linalg.eigh((centred + centred.T) / 2)  # step 5
        d, V = d[::-1], V[:, ::-1]
        nonzero = d > 1e-10 * d[0]
        d, V = d[nonzero], V[:, nonzero]
        share = np.cumsum(np.sqrt(d)) / np.sqrt(d).sum()  # step 6
        L_i = int(np.flatnonzero(share >= energies[i] - 1e-12)[0]) + 1
        V_hat.append(V[:, :L_i])  # steps 7 and 8
        D_hat.append(np.diag(d[:L_i]))
        standardized.append((Z, mean, std))
        gram.append(K_i)

    V_star = scipy.linalg.block_diag(*V_hat)
    S, E = np.linalg.eigh(V_star.T @ L @ V_star)  # step 10
    E_hat = E[:, :K]  # step 11
    cuts = np.cumsum([V.shape[1] for V in V_hat])[:-1]
    E_blocks = np.split(E_hat, cuts)

    def subject_map(i):
        Z_i, mean, std = standardized[i]
        T_i = Z_i.shape[1]

        def apply(new):
            # W_i^T phi(z), with W_i = Phi_i V_i D_i^-1 E_i (step 12), all centred
            cross = kernel_matrix(kernels[i], (new - mean) / std, Z_i)
            J_e, J_t = np.ones((new.shape[1], T_i)), np.ones((T_i, T_i))
            centred = (
                cross
                + J_e @ gram[i] @ J_t / T_i**2
                - J_e @ gram[i] / T_i
                - cross @ J_t / T_i
            )
            return (centred @ V_hat[i] @ np.linalg.inv(D_hat[i]) @ E_blocks[i]).T

        return apply

    Y = (V_star @ E_hat).T
    dims = [V.shape[1] for V in V_hat]
    return Literal(S, Y, [subject_map(i) for i in range(M)], L, dims)


def naive_kernel_scheme(gram_matrices, L, K):
    """The paper's naive scheme: W_i = Phi_i B_i, a generalised eigenproblem in B.

    K_* L K_* b = lambda K_* K_* b on the range of K_*, with dense T x T matrices.
    """
    K_star = scipy.linalg.block_diag(*gram_matrices)
    left, right = K_star @ L @ K_star, K_star @ K_star
    # K_* is singular (its rows are centred); restrict b to its range
    d, V = np.linalg.eigh(K_star)
    basis = V[:, d > 1e-9 * d.max()]
    values, B = scipy.linalg.eigh(basis.T @ left @ basis, basis.T @ right @ basis)
    Y = (K_star @ basis @ B[:, :K]).T
    return values, Y
